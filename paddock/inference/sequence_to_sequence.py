"""What `paddock predict` runs for sequence to sequence: the target of a source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from paddock.data.sequence_pairs.config import SequencePairsData
from paddock.data.sequence_pairs.text import encode_source
from paddock.data.tokenizers.interface import check_text
from paddock.data.tokenizers.load import check_fits
from paddock.errors import ConfigError, DataError
from paddock.inference.generation.generate import generate
from paddock.inference.generation.options import GenerationOptions
from paddock.inference.predictors import Answer, OnBatch, PredictorSetup


class TargetPredictor:
    """Writes the likeliest target, with the settings that the run was evaluated with."""

    suffixes: ClassVar[tuple[str, ...]] = ()
    default_top_k: ClassVar[int] = 1

    def __init__(self, setup: PredictorSetup) -> None:
        if setup.tokenizer is None:
            fix = "put one there; a run whose recipe has a tokenizer keeps its own"
            raise DataError(f"{setup.origin} has no tokenizer", fix=fix)
        assert isinstance(setup.data, SequencePairsData)
        self._setup, self._data, self._tokenizer = setup, setup.data, setup.tokenizer
        config: Any = setup.model.config
        check_fits(self._tokenizer, config.vocabulary(), parts=("pad", "end_of_text"))

    def query(self, value: Any, where: str) -> list[int]:
        """A string, or the source under the key that the training data has it under; it becomes a row of tokens."""
        text = value
        if isinstance(value, dict):
            text = value.get(self._data.source_key, value.get("source", value.get("text")))
        if not isinstance(text, str) or not text.strip():
            raise DataError(f"{where} has no source", fix=f'give a string, or {{"{self._data.source_key}": "…"}}')
        check_text(where, text)
        (row,) = encode_source([text], self._tokenizer, self._data.prefix)
        longest = self._data.sequence_length
        if len(row) > longest and not self._data.truncate:
            raise DataError(
                f"{where} has a source of {len(row)} tokens",
                why=f"the model was trained with data.sequence_length = {longest}",
                fix="shorten it",
            )
        return row if len(row) <= longest else [*row[: longest - 1], row[-1]]

    def predict(self, queries: Sequence[list[int]], top_k: int, on_batch: OnBatch | None = None) -> list[list[Answer]]:
        """{"text"}: what the model writes, a batch of sources at a time."""
        if top_k != 1:
            raise ConfigError(f"--top-k {top_k}", why="one target is written for each source", fix="leave it out")
        longest, end = self._data.max_new_tokens or self._data.target_length, self._tokenizer.end_of_text_id
        options = GenerationOptions(
            max_new_tokens=longest, temperature=0.0, num_beams=self._data.num_beams, stop_token=end
        )
        size, found = self._setup.batch, list[list[Answer]]()
        for first in range(0, len(queries), size):
            for tokens in generate(self._setup.model, queries[first : first + size], options):
                found.append([{"text": self._tokenizer.decode(tokens)}])
            if on_batch is not None:
                on_batch(first // size + 1, -(-len(queries) // size))
        return found

    def show(self, name: str, answers: Sequence[Answer]) -> str:
        return str(answers[0]["text"])
