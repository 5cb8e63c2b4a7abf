"""What language models are measured by, and never trained for: the perplexity of any text, and LAMBADA.

`paddock evaluate RUN --text FILE` and `--lambada FILE` put one of them in the place of the run's own task.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from paddock.data.config import DataConfig, Part, TokenizerConfig
from paddock.data.language.windows import EvaluationSamples, SlidingSamples
from paddock.data.measuring.config import LambadaData, TextData
from paddock.data.measuring.continuations import ask_for_last, is_right, join_continuations, said_instead
from paddock.data.measuring.lambada import LambadaExamples, load_examples
from paddock.data.measuring.text import MeasuredText, load_text
from paddock.data.tokenizers.load import Tokenizer, check_fits, load_tokenizer
from paddock.models.config import IGNORED, ModelConfig
from paddock.models.layers.basic import widest
from paddock.tasks.corpora import perplexity
from paddock.tasks.language_modeling import join_windows
from paddock.tasks.task import HELD_OUT_DATA, INDEX, Batch, Goal, Judgement, Sample, Samples, Task

SHOWN = 40
"""Tokens before a last word that was not found, in a report."""
Content = TypeVar("Content")


@dataclass(frozen=True)
class PreparedMeasure(Generic[Content]):
    """What is measured on, as the tokenizer makes it."""

    tokenizer: Tokenizer
    content: Content
    classes: tuple[str, ...] = ()


class Measure(Task):
    """A task without training data."""

    next_command: ClassVar[str] = "evaluate {run}"

    def training_samples(self) -> Samples:
        raise AssertionError("a rule of the recipe refuses to train for it")


def _tokenizer(config: TokenizerConfig, model: ModelConfig) -> Tokenizer:
    tokenizer = load_tokenizer(config)
    assert tokenizer is not None, "a rule of the recipe sees to it"
    check_fits(tokenizer, model.vocabulary())
    return tokenizer


class TextPerplexity(Measure):
    """The perplexity of a text: of a token, as the model's tokenizer cuts it, and so that models with different
    tokenizers compare: of a word, a byte, a character."""

    measures: ClassVar[Mapping[str, Goal]] = dict.fromkeys(
        ("loss", "perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte", "bits_per_character"), "MINIMIZE"
    )
    judges_outputs: ClassVar[bool] = False

    @classmethod
    def prepare(cls, data: DataConfig, tokenizer: TokenizerConfig, model: ModelConfig) -> PreparedMeasure[MeasuredText]:
        assert isinstance(data, TextData)
        found = _tokenizer(tokenizer, model)
        return PreparedMeasure(found, load_text(data, found))

    @classmethod
    def build(
        cls, data: DataConfig, prepared: PreparedMeasure[MeasuredText], model: ModelConfig, seed: int
    ) -> TextPerplexity:
        return cls(data, prepared.content)

    def __init__(self, data: DataConfig, text: MeasuredText) -> None:
        self._length, self._text = data.sample_shape().source, text

    def validation_samples(self) -> Sequence[Sample]:
        return self.held_out_samples("validation", None)

    def held_out_samples(self, part: Part, stride: int | None) -> Sequence[Sample]:
        if stride is None:
            return EvaluationSamples(self._text, range(1), self._length)
        return SlidingSamples(self._text, range(1), self._length, stride)

    def collate(self, samples: list[Sample]) -> Batch:
        return join_windows(samples)

    def count(self, batch: Batch) -> int:
        return int((batch["labels"] != IGNORED).sum())

    def metrics(self, judgement: Judgement) -> dict[str, float]:
        """As lm-eval defines them: the sum over all tokens that were scored, by the length of the whole text."""
        total, text = judgement.sums["loss"], self._text
        loss, bits = total / max(judgement.sums["count"], 1.0), total / math.log(2)
        return {
            "loss": loss,
            "perplexity": perplexity(loss),
            "word_perplexity": perplexity(total / text.words),
            "byte_perplexity": perplexity(total / text.bytes),
            "bits_per_byte": bits / text.bytes,
            "bits_per_character": bits / text.characters,
        }


class EvaluationExamples(Sequence[Sample]):
    """Every passage, in the order of the file."""

    def __init__(self, examples: LambadaExamples, tokens_at_once: int) -> None:
        self._examples, self.lengths, self.tokens_at_once = examples, examples.lengths, tokens_at_once

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, index: int) -> Sample:  # type: ignore[override]
        if not 0 <= index < len(self):
            raise IndexError(index)
        asked = ask_for_last(self._examples.tokens(index), self._examples.targets.item(index))
        return {**asked, INDEX: index}


class Lambada(Measure):
    """Passages whose last word is to be found: how often greedy decoding does, and how likely it is to the model."""

    measures: ClassVar[Mapping[str, Goal]] = {
        "lambada_accuracy": "MAXIMIZE",
        "lambada_perplexity": "MINIMIZE",
        "loss": "MINIMIZE",
    }
    judges_outputs: ClassVar[bool] = True
    judges_labels: ClassVar[bool] = True
    tells_missed: ClassVar[bool] = True

    @classmethod
    def prepare(
        cls, data: DataConfig, tokenizer: TokenizerConfig, model: ModelConfig
    ) -> PreparedMeasure[LambadaExamples]:
        assert isinstance(data, LambadaData)
        found = _tokenizer(tokenizer, model)
        return PreparedMeasure(found, load_examples(data, found))

    @classmethod
    def build(
        cls, data: DataConfig, prepared: PreparedMeasure[LambadaExamples], model: ModelConfig, seed: int
    ) -> Lambada:
        assert isinstance(data, LambadaData)
        return cls(data, prepared.content, prepared.tokenizer)

    def __init__(self, data: LambadaData, examples: LambadaExamples, tokenizer: Tokenizer) -> None:
        self._data, self._examples, self._tokenizer = data, examples, tokenizer

    def validation_samples(self) -> Sequence[Sample]:
        return EvaluationExamples(self._examples, self._data.tokens_at_once)

    def held_out_fingerprint(self) -> dict[str, int | str]:
        content = f"{len(self._examples)} passages, {self._examples.digest[:12]}"
        return {"data.form": self._data.form, HELD_OUT_DATA: content}

    def notes(self) -> list[str]:
        if not self._examples.truncated:
            return []
        longest = self._data.sequence_length
        return [
            f"{self._examples.truncated} of {len(self._examples)} passages are longer than {longest} tokens, and lose "
            "their beginning"
        ]

    def collate(self, samples: list[Sample]) -> Batch:
        numbers = torch.tensor([sample[INDEX] for sample in samples])
        return {**join_continuations(samples, self._data.sequence_length), INDEX: numbers}

    def count(self, batch: Batch) -> int:
        return len(batch["labels"])

    def judge(self, batch: Batch, outputs: Tensor) -> Judgement:
        """Of every passage its number, the log probability of what was to be found, and what was said instead, if
        anything was."""
        labels, (likely, likeliest) = batch["labels"], outputs.unbind(-1)
        sums = widest(likely).sum(-1)
        found = Judgement({"loss": -float(sums.sum()), "count": float(len(labels))})
        columns = (batch[INDEX], sums, is_right(labels, likeliest), labels, likeliest.long())
        for number, log_probability, right, wanted, said in zip(*(one.tolist() for one in columns), strict=True):
            instead = None if right else said_instead(wanted, said)
            found.records.append([number, log_probability, instead])
        return found

    def metrics(self, judgement: Judgement) -> dict[str, float]:
        count = len(judgement.records)
        loss = -math.fsum(log_probability for _, log_probability, _ in judgement.records) / count
        right = sum(instead is None for _, _, instead in judgement.records)
        found = {"lambada_accuracy": right / count, "lambada_perplexity": perplexity(loss), "loss": loss}
        return found | ({"truncated": float(self._examples.truncated)} if self._examples.truncated else {})

    def missed(self, judgement: Judgement) -> Iterator[dict[str, Any]]:
        decode = self._tokenizer.decode
        for number, log_probability, instead in sorted(judgement.records, key=itemgetter(0)):
            if instead is None:
                continue
            context, expected = self._examples.parts(number)
            yield {
                "line": number + 1,
                "context": decode(context[-SHOWN:]).lstrip("\ufffd"),
                "expected": decode(expected),
                "said": decode(instead),
                "log_probability": log_probability,
            }

    def summary(self, metrics: Mapping[str, float]) -> str:
        """As OneFlow-GPT writes it, and Megatron-LM."""
        accuracy, count = metrics["lambada_accuracy"], len(self._examples)
        return (
            f"validation results on LAMBADA | number correct: {round(accuracy * count):.4E} | "
            f"total examples: {count:.4E} | avg accuracy: {accuracy:.4E}"
        )
