"""Telling what kind texts are of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from paddock.data.labels.config import LabelledTextData
from paddock.data.labels.text import encode_rows
from paddock.data.loading.loader import pad_rows
from paddock.data.loading.sampler import by_length
from paddock.data.tokenizers.engine import EngineTokenizer
from paddock.data.tokenizers.interface import check_text
from paddock.data.tokenizers.load import check_fits
from paddock.errors import DataError
from paddock.inference.predictors import Answer, Tick, Tools
from paddock.inference.rows import outputs_of

Texts = tuple[str, str | None]


class TextLabelPredictor:
    """What `paddock predict` runs for sequence classification."""

    suffixes: ClassVar[tuple[str, ...]] = ()
    usual_top_k: ClassVar[int] = 1

    def __init__(self, tools: Tools) -> None:
        assert isinstance(tools.data, LabelledTextData)
        if not isinstance(tools.tokenizer, EngineTokenizer):
            raise DataError(
                f"{tools.origin} has no tokenizer",
                why="there is no tokenizer.json or vocab.txt in it or in its run directory",
                fix="put one there; a run keeps its own",
            )
        self._tools, self._tokenizer, self._data = tools, tools.tokenizer, tools.data
        config: Any = tools.model.config
        check_fits(self._tokenizer, config.vocabulary(), parts=("cls", "sep", "pad"))
        self._longest = min(tools.data.sequence_length, config.longest_sequence() or tools.data.sequence_length)
        self._classes = list(tools.classes) or [str(number) for number in range(config.classes)]

    def query(self, value: Any, where: str) -> Texts:
        """A string, or the text (and the pair) under the keys that the training data has them under."""
        if isinstance(value, dict):
            first = value.get(self._data.text, value.get("text"))
            second = value.get(self._data.pair or "pair", value.get("pair"))
        else:
            first, second = value, None
        if not isinstance(first, str) or not isinstance(second, str | None):
            raise DataError(f"{where} has no text", fix=f'give a string, or {{"{self._data.text}": "…"}}')
        if self._data.pair is not None and second is None:
            raise DataError(
                f"{where} has no second text",
                why="the model was trained on pairs of texts",
                fix=f'give {{"{self._data.text}": "…", "{self._data.pair}": "…"}}',
            )
        check_text(where, first + (second or ""))
        return first, second

    def predict(self, queries: Sequence[Texts], top_k: int, tick: Tick | None = None) -> list[list[Answer]]:
        """{"label", "score"}: the score is the probability."""
        rows: list[tuple[list[int], int]] = []
        for first, second in queries:
            rows += encode_rows([first], None if second is None else [second], self._tokenizer, self._longest)
        found: list[list[Answer]] = [[] for _ in queries]
        batches = by_length([len(row) for row, _ in rows], self._tools.batch)
        for number, part in enumerate(batches):
            for index, chances in zip(part, self._chances([rows[index] for index in part]), strict=True):
                order = np.argsort(-chances, kind="stable")[:top_k].tolist()
                scores = [(self._classes[kind], round(float(chances[kind]), 4)) for kind in order]
                found[index] = [{"label": label, "score": score} for label, score in scores]
            if tick is not None:
                tick(number + 1, len(batches))
        return found

    def show(self, name: str, answers: Sequence[Answer]) -> str:
        return json.dumps(list(answers), ensure_ascii=False)

    def _chances(self, rows: Sequence[tuple[list[int], int]]) -> Any:
        assert self._tokenizer.pad_id is not None
        samples = [
            {"tokens": row, "token_types": [int(place >= first) for place in range(len(row))], "length": None}
            for row, first in rows
        ]
        batch = pad_rows(samples, self._tokenizer.pad_id, self._longest)
        batch = {name: tensor.to(self._tools.device) for name, tensor in batch.items()}
        outputs = outputs_of(self._tools.model, batch)
        return outputs.float().softmax(-1).cpu().numpy()
