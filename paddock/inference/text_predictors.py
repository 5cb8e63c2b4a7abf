"""Predictors of texts: the base of them all, the class of a text, and the word behind [MASK]."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from paddock.data.labels.config import LabelledTextData
from paddock.data.labels.text import encode_rows
from paddock.data.loading.loader import pad_rows
from paddock.data.loading.sampler import by_length
from paddock.data.tokenizers.engine import EngineTokenizer
from paddock.data.tokenizers.interface import check_text
from paddock.data.tokenizers.load import check_fits
from paddock.errors import DataError
from paddock.inference.outputs import outputs_of
from paddock.inference.predictors import Answer, OnBatch, PredictorSetup

Texts = tuple[str, str | None]


class TextPredictor:
    """What predictors of texts share: a tokenizer that fits the model, and batches of rows of like length."""

    suffixes: ClassVar[tuple[str, ...]] = ()
    default_top_k: ClassVar[int] = 1
    special_tokens: ClassVar[tuple[str, ...]] = ("cls", "sep", "pad")

    def __init__(self, setup: PredictorSetup) -> None:
        if not isinstance(setup.tokenizer, EngineTokenizer):
            raise DataError(
                f"{setup.origin} has no tokenizer that knows the places of tokens in a text",
                why="there is no tokenizer.json or vocab.txt in it or in its run directory",
                fix="put one there; a run whose recipe has a tokenizer keeps its own",
            )
        self._setup, self._tokenizer = setup, setup.tokenizer
        config: Any = setup.model.config
        self._config = config
        check_fits(self._tokenizer, config.vocabulary(), parts=self.special_tokens)

    def show(self, name: str, answers: Sequence[Answer]) -> str:
        return json.dumps(list(answers), ensure_ascii=False)

    def _batches(self, lengths: Sequence[int], on_batch: OnBatch | None) -> Iterator[list[int]]:
        """The numbers of rows of like length, a batch at a time; `on_batch` hears of each when it is done."""
        batches = by_length(lengths, self._setup.batch)
        for number, rows in enumerate(batches, start=1):
            yield rows
            if on_batch is not None:
                on_batch(number, len(batches))

    def _padded(self, rows: Sequence[Sequence[int]], token_types: Sequence[Any], longest: int) -> dict[str, Tensor]:
        """Rows of tokens as a batch, where the model is."""
        assert self._tokenizer.pad_id is not None
        samples = [
            {"tokens": row, "token_types": types, "length": None} for row, types in zip(rows, token_types, strict=True)
        ]
        batch = pad_rows(samples, self._tokenizer.pad_id, longest)
        return {name: tensor.to(self._setup.device) for name, tensor in batch.items()}


class TextLabelPredictor(TextPredictor):
    """What `paddock predict` runs for sequence classification: the class of a text, or of a pair of texts."""

    def __init__(self, setup: PredictorSetup) -> None:
        super().__init__(setup)
        assert isinstance(setup.data, LabelledTextData)
        self._data = setup.data
        self._longest = min(setup.data.sequence_length, self._config.longest_sequence() or setup.data.sequence_length)
        self._classes = list(setup.classes) or [str(number) for number in range(self._config.classes)]

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

    def predict(self, queries: Sequence[Texts], top_k: int, on_batch: OnBatch | None = None) -> list[list[Answer]]:
        """{"label", "score"}: the score is the probability."""
        rows: list[tuple[list[int], int]] = []
        for first, second in queries:
            rows += encode_rows([first], None if second is None else [second], self._tokenizer, self._longest)
        found: list[list[Answer]] = [[] for _ in queries]
        for part in self._batches([len(row) for row, _ in rows], on_batch):
            for index, probabilities in zip(part, self._probabilities([rows[index] for index in part]), strict=True):
                order = np.argsort(-probabilities, kind="stable")[:top_k].tolist()
                scores = [(self._classes[kind], round(float(probabilities[kind]), 4)) for kind in order]
                found[index] = [{"label": label, "score": score} for label, score in scores]
        return found

    def _probabilities(self, rows: Sequence[tuple[list[int], int]]) -> Any:
        types = [[int(place >= first) for place in range(len(row))] for row, first in rows]
        outputs = outputs_of(self._setup.model, self._padded([row for row, _ in rows], types, self._longest))
        return outputs.float().softmax(-1).cpu().numpy()


class FillMaskPredictor(TextPredictor):
    """What `paddock predict` runs for masked language modelling: the word behind [MASK]."""

    default_top_k: ClassVar[int] = 5
    special_tokens: ClassVar[tuple[str, ...]] = ("cls", "sep", "pad", "mask")

    def query(self, value: Any, where: str) -> list[int]:
        """A text with one [MASK], as a string or under "text"; it becomes a row of tokens."""
        text = value.get("text") if isinstance(value, dict) else value
        if not isinstance(text, str):
            raise DataError(f"{where} has no text", fix='give a string, or {"text": "…"}')
        check_text(where, text)
        tokenizer, name = self._tokenizer, self._tokenizer.special["mask"]
        assert tokenizer.cls_id is not None and tokenizer.sep_id is not None and tokenizer.mask_id is not None
        row = [tokenizer.cls_id, *tokenizer.encode_plain([text])[0], tokenizer.sep_id]
        if row.count(tokenizer.mask_id) != 1:
            raise DataError(
                f"{where} has {row.count(tokenizer.mask_id)} masked words",
                why=f"one {name} in a text is the word to find",
                fix=f"write {name} in place of one word",
            )
        longest = self._config.longest_sequence()
        if len(row) > longest:
            raise DataError(f"{where} has {len(row)} tokens", why=f"the model has only {longest} positions")
        return row

    def predict(self, queries: Sequence[list[int]], top_k: int, on_batch: OnBatch | None = None) -> list[list[Answer]]:
        """{"token", "score"}: the score is the probability."""
        found: list[list[Answer]] = [[] for _ in queries]
        for part in self._batches([len(row) for row in queries], on_batch):
            probabilities = self._probabilities([queries[index] for index in part])
            scores, tokens = probabilities.topk(min(top_k, probabilities.shape[-1]))
            for index, best, ids in zip(part, scores.tolist(), tokens.tolist(), strict=True):
                found[index] = [
                    {"token": self._tokenizer.token_at(id), "score": round(score, 4)}
                    for id, score in zip(ids, best, strict=True)
                ]
        return found

    def _probabilities(self, rows: Sequence[list[int]]) -> Tensor:
        """The probability of every token at the masked place of each row."""
        batch = self._padded(rows, [np.zeros(len(row)) for row in rows], self._config.longest_sequence())
        outputs = outputs_of(self._setup.model, batch)
        places = torch.tensor([row.index(self._tokenizer.mask_id or 0) for row in rows], device=outputs.device)
        masked = outputs[torch.arange(len(rows), device=outputs.device), places]
        return masked[:, : self._tokenizer.vocab_size].float().softmax(-1).cpu()
