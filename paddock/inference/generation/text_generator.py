"""Texts in, texts out: a model that writes, with its tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypedDict

from paddock.inference.generation.generate import Limits, generating
from paddock.inference.generation.options import GenerationOptions
from paddock.inference.generation.parallel_decoder import Replica
from paddock.inference.generation.prompts import check_tokenizer, check_writes, prompt_ids
from paddock.inference.generation.requests import TokenLogprobs
from paddock.inference.generation.text_stream import StoppingText, WholeText
from paddock.inference.trained import Trained, need_tokenizer

OnStep = Callable[[int, int], None]
"""Called after every step with how many sequences have ended, and how many tokens there are."""


class LikelyToken(TypedDict):
    """A token, its text by itself, and its log probability."""

    token: int
    text: str
    logprob: float


class WrittenToken(LikelyToken):
    """A token that was written, and those that the model found likeliest in its place, the likeliest first."""

    top: list[LikelyToken]


@dataclass(frozen=True)
class Continuation:
    """A prompt and what the model made of it."""

    prompt: str
    text: str
    tokens: int
    continues: bool
    """Whether the text goes on where the prompt ends, rather than answering it."""
    logprobs: list[WrittenToken] | None = None
    """How likely the model found each of its tokens, where that was asked for."""

    def record(self) -> dict[str, Any]:
        """As plain values, without what was not asked for."""
        return {name: value for name, value in asdict(self).items() if value is not None}


class TextGenerator:
    """Continues texts, or answers them where the model reads what it is given. A text ends before the first of the
    `stops` that comes."""

    def __init__(
        self,
        trained: Trained,
        options: GenerationOptions,
        stops: Sequence[str] = (),
        limits: Limits = Limits(),  # noqa: B008 - frozen
        replica: Replica | None = None,
    ) -> None:
        self._model, self._tokenizer, self._replica = trained.model, need_tokenizer(trained), replica
        check_writes(self._model.writes, trained.origin)
        check_tokenizer(self._tokenizer, self._model.config, trained.origin)
        self.continues = self._model.writes == "tokens"
        self._stops, self._limits = stops, limits
        self._options = replace(options, stop_token=self._tokenizer.end_of_text_id)

    def write(self, prompts: Sequence[str], numbers: Sequence[int] | None = None) -> list[Continuation]:
        """What becomes of every prompt, one behind the other; `num_return_sequences` of each."""
        found: list[Continuation] = []
        for _ in self.pieces(prompts, found, numbers):
            pass
        return found

    def pieces(
        self,
        prompts: Sequence[str],
        found: list[Continuation],
        numbers: Sequence[int] | None = None,
        on_step: OnStep | None = None,
    ) -> Iterator[tuple[int, str]]:
        """The number of a sequence and what has become certain of its text, as it comes; in the end all are `found`.
        `numbers` say which of all prompts these are."""
        copies = self._options.num_return_sequences
        texts = [self._text() for _ in range(len(prompts) * copies)]
        told: list[tuple[int, str]] = []
        ended: list[int] = []
        count = 0

        def on_token(sequence: int, token: int) -> bool:
            nonlocal count
            count += 1
            told.append((sequence, texts[sequence].push(token)))
            return texts[sequence].stopped

        tokens: list[list[int]] = [[] for _ in texts]
        ids = prompt_ids(self._tokenizer, prompts, self.continues)
        logprobs: list[list[TokenLogprobs]] = [[] for _ in texts]
        how = (self._options, tokens, on_token, self._limits, numbers, self._replica, logprobs)
        for _ in generating(self._model, ids, *how, on_end=ended.append):
            if on_step is not None:
                on_step(len(ended), count)
            yield from (piece for piece in told if piece[1])
            told.clear()
        yield from ((sequence, rest) for sequence, text in enumerate(texts) if (rest := text.finish()))
        found += [
            Continuation(
                prompts[sequence // copies],
                text.text,
                len(tokens[sequence]),
                self.continues,
                self._scored(tokens[sequence], logprobs[sequence]),
            )
            for sequence, text in enumerate(texts)
        ]

    def _scored(self, tokens: Sequence[int], logprobs: Sequence[TokenLogprobs]) -> list[WrittenToken] | None:
        if self._options.logprobs is None:
            return None
        return [
            {**self._likely(token, one.chosen), "top": [self._likely(*likely) for likely in one.likeliest]}
            for token, one in zip(tokens, logprobs, strict=True)
        ]

    def _likely(self, token: int, logprob: float) -> LikelyToken:
        decode = self._tokenizer.decode if self.continues else self._tokenizer.decode_named
        return {"token": token, "text": decode([token]), "logprob": logprob}

    def _text(self) -> StoppingText | WholeText:
        """What becomes of the tokens of a sequence; where gaps are filled in, each piece is behind the gap's name."""
        if self.continues:
            return StoppingText(self._tokenizer.decode, self._stops)
        return WholeText(self._tokenizer.decode_named, self._stops)
