"""Saying which word is hidden behind [MASK]."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from paddock.data.loading.loader import pad_rows
from paddock.data.loading.sampler import by_length
from paddock.data.tokenizers.engine import EngineTokenizer
from paddock.data.tokenizers.interface import check_text
from paddock.data.tokenizers.load import check_fits
from paddock.errors import DataError
from paddock.inference.predictors import Answer, Tick, Tools
from paddock.inference.rows import outputs_of


class FillMaskPredictor:
    """What `paddock predict` runs for masked language modelling."""

    suffixes: ClassVar[tuple[str, ...]] = ()
    usual_top_k: ClassVar[int] = 5

    def __init__(self, tools: Tools) -> None:
        if not isinstance(tools.tokenizer, EngineTokenizer):
            raise DataError(
                f"{tools.origin} has no tokenizer",
                why="there is no tokenizer.json or vocab.txt in it or in its run directory",
                fix="put one there; a run whose recipe has a tokenizer keeps its own",
            )
        config: Any = tools.model.config
        check_fits(tools.tokenizer, config.vocabulary(), parts=("cls", "sep", "pad", "mask"))
        self._tools, self._tokenizer = tools, tools.tokenizer
        self._longest: int = config.longest_sequence()

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
                f"{where} has {row.count(tokenizer.mask_id)} hidden words",
                why=f"one {name} in a text is the word to find",
                fix=f"write {name} in place of one word",
            )
        if len(row) > self._longest:
            raise DataError(f"{where} has {len(row)} tokens", why=f"the model has only {self._longest} positions")
        return row

    def predict(self, queries: Sequence[list[int]], top_k: int, tick: Tick | None = None) -> list[list[Answer]]:
        """{"token", "score"}: the score is the probability."""
        found: list[list[Answer]] = [[] for _ in queries]
        batches = by_length([len(row) for row in queries], self._tools.batch)
        for number, part in enumerate(batches):
            chances = self._chances([queries[index] for index in part])
            scores, tokens = chances.topk(min(top_k, chances.shape[-1]))
            for index, best, ids in zip(part, scores.tolist(), tokens.tolist(), strict=True):
                pairs = zip(ids, best, strict=True)
                found[index] = [
                    {"token": self._tokenizer.token_at(id), "score": round(score, 4)} for id, score in pairs
                ]
            if tick is not None:
                tick(number + 1, len(batches))
        return found

    def show(self, name: str, answers: Sequence[Answer]) -> str:
        return json.dumps(list(answers), ensure_ascii=False)

    def _chances(self, rows: Sequence[list[int]]) -> torch.Tensor:
        """The probability of every token at the hidden place of each row."""
        assert self._tokenizer.pad_id is not None
        samples = [{"tokens": row, "token_types": np.zeros(len(row)), "length": None} for row in rows]
        batch = pad_rows(samples, self._tokenizer.pad_id, self._longest)
        batch = {name: tensor.to(self._tools.device) for name, tensor in batch.items()}
        outputs = outputs_of(self._tools.model, batch)
        places = torch.tensor([row.index(self._tokenizer.mask_id or 0) for row in rows], device=outputs.device)
        hidden = outputs[torch.arange(len(rows), device=outputs.device), places]
        return hidden[:, : self._tokenizer.vocab_size].float().softmax(-1).cpu()
