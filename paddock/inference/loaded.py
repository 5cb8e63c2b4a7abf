"""A trained model in Python: to look at, to write with, to measure a text by."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import cached_property
from typing import Any, Literal, overload

import torch

from paddock.arguments import check_type, described, listed
from paddock.data.tokenizers.interface import check_text
from paddock.data.tokenizers.load import Tokenizer
from paddock.devices import adapter_of, prepare, select
from paddock.devices.config import WeightFormat
from paddock.devices.threads import free_threads, threads_in_use, usual_threads
from paddock.errors import ConfigError, bad_value, did_you_mean
from paddock.inference.generation.generate import Limits
from paddock.inference.generation.options import GenerationOptions
from paddock.inference.generation.text_generator import Continuation, TextGenerator
from paddock.inference.trained import Trained, need_tokenizer, open_trained
from paddock.models.config import IGNORED
from paddock.models.layers.packing import set_format
from paddock.models.model import Model, evaluating
from paddock.telemetry.format import count

WINDOWS_AT_ONCE = 4
"""When a text is measured."""


class LoadedModel:
    """What `paddock.load` gives: `.model`, `.tokenizer`, `.generate(prompts, …)` and `.perplexity(text)`.

    >>> loaded = paddock.load("runs/tour")
    >>> loaded.generate("The class", max_new_tokens=20, temperature=0)
    """

    def __init__(self, trained: Trained, threads: int | None = None) -> None:
        self._trained, self._asked_threads = trained, threads

    @property
    def model(self) -> Model:
        """The model itself: a torch module, in evaluation mode.

        >>> tokens = torch.tensor([loaded.tokenizer.encode("The class")])
        >>> loaded.model(tokens=tokens).shape
        """
        return self._trained.model

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer: `encode(text)`, `decode(tokens)`.

        >>> loaded.tokenizer.decode(loaded.tokenizer.encode("The class"))
        """
        return need_tokenizer(self._trained)

    def __repr__(self) -> str:
        size, device = count(self.model.config.num_parameters()), self._device
        return f"<{type(self.model).__name__} of {size} parameters on {device}: {self._trained.origin}>"

    @overload
    def generate(
        self,
        prompts: str | Sequence[str],
        *,
        stop: Sequence[str] = (),
        stream: Literal[False] = False,
        logprobs: None = None,
        **options: Any,
    ) -> list[str]: ...

    @overload
    def generate(
        self,
        prompts: str | Sequence[str],
        *,
        stop: Sequence[str] = (),
        stream: Literal[False] = False,
        logprobs: int,
        **options: Any,
    ) -> list[Continuation]: ...

    @overload
    def generate(
        self, prompts: str | Sequence[str], *, stop: Sequence[str] = (), stream: Literal[True], **options: Any
    ) -> Iterator[tuple[int, str]]: ...

    def generate(
        self,
        prompts: str | Sequence[str],
        *,
        stop: Sequence[str] = (),
        stream: bool = False,
        logprobs: int | None = None,
        **options: Any,
    ) -> list[str] | list[Continuation] | Iterator[tuple[int, str]]:
        """What the model makes of the prompts, without them: `num_return_sequences` texts of each, one behind the
        other. Options are those of `paddock generate`: `max_new_tokens`, `temperature`, `top_k`, `seed`, `num_beams`, …

        With `stream`, an iterator over (number of the text, what has become certain of it), as it is written. With
        `logprobs` (0 or more), `Continuation`s instead of texts: their `.logprobs` has for every token its log
        probability, and so many of the likeliest in its place.

        >>> paddock.load("runs/tour").generate("The class", max_new_tokens=20, seed=1)
        """
        texts = listed("prompts", prompts)
        for text in texts:
            check_text("a prompt", text)
        check_type("stream", stream, bool, fix="True gives an iterator")
        known = [field.name for field in fields(GenerationOptions) if field.name != "stop_token"]
        for name in options:
            if name not in known:
                raise ConfigError(f"{name}: there is no such option", fix=did_you_mean(name, known))
        is_row = isinstance(stop, Sequence) and not isinstance(stop, str)
        if not (is_row and all(isinstance(text, str) and text for text in stop)):
            raise ConfigError(
                f"stop is {described(stop)}", why="it is a list of texts before which to end", fix='such as ["\\n"]'
            )
        if stream and logprobs is not None:
            raise bad_value("logprobs", logprobs, "pieces of text are no tokens: there is none to tell", "stream=False")
        chosen = GenerationOptions(**{"max_new_tokens": 64, "logprobs": logprobs, **options})
        chosen.check()
        generator = TextGenerator(self._trained, chosen, stop, Limits())
        found: list[Continuation] = []
        pieces = self._by_our_products(generator.pieces(texts, found))
        if stream:
            return pieces
        for _ in pieces:
            pass
        return [one.text for one in found] if logprobs is None else found

    def _by_our_products(self, pieces: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
        """The same, with the products and threads of `paddock generate`, but nothing that is computed in between."""
        threads = self._threads()
        while True:
            with threads_in_use(threads), adapter_of(self._device).using_products(self._products):
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def _threads(self) -> int | None:
        """To compute with from now on: what was asked for, or what is free, unless somebody has said it otherwise."""
        usual = usual_threads(adapter_of(self._device), library=True)
        if usual is None or self._asked_threads is not None:
            return self._asked_threads
        return free_threads(usual, library=True)

    @cached_property
    def _products(self) -> dict[str, Any]:
        return adapter_of(self._device).choose_products("auto", self.model.config.num_parameters())

    @torch.inference_mode()
    def perplexity(self, text: str, stride: int | None = None) -> float:
        """How surprised the model is by a text: e to the power of its mean negative log-likelihood a token, of all but
        the first. A text that is longer than the context goes through in windows, each `stride` tokens behind the last
        (half a context, unless told); a token is scored once, with all that its window has before it.

        >>> loaded.perplexity("The class statement defines a class.")
        """
        check_type("stride", stride, int, fix="so many tokens, such as stride=16; without it, half a context")
        if not isinstance(text, str):
            raise ConfigError(
                f"text is {described(text)}", why="what is wanted is a text", fix="of several, ask for each, one by one"
            )
        check_text("the text", text)
        model = self.model
        if model.writes != "tokens":
            raise ConfigError(f"a {type(model).__name__} does not continue texts, so it has no perplexity of one")
        tokens = self.tokenizer.encode(text)
        if len(tokens) < 2:
            raise ConfigError(
                f"the text has {len(tokens)} token{'' if tokens else 's'}", why="the second is the first scored"
            )
        window = min(model.config.longest_sequence() or len(tokens), len(tokens) - 1)
        stride = max(1, window // 2) if stride is None else stride
        if not 1 <= stride <= window:
            raise bad_value("stride", stride, f"windows of {window} tokens would leave some out", f"1 to {window}")
        total, device = 0.0, self._device
        rows = windows(tokens, window, stride)
        with threads_in_use(self._threads()), evaluating(model):
            for first in range(0, len(rows), WINDOWS_AT_ONCE):
                some = torch.tensor(rows[first : first + WINDOWS_AT_ONCE], device=device)
                total += float(model(tokens=some[:, 0], labels=some[:, 1]))
        return math.exp(total / (len(tokens) - 1))


def windows(tokens: Sequence[int], length: int, stride: int) -> list[tuple[list[int], list[int]]]:
    """Tokens and labels of windows of one length, over a text that is at least one token longer: each of its tokens but
    the first is the label of one window, the earliest that has it."""
    rows: list[tuple[list[int], list[int]]] = []
    scored, start = 1, 0
    while scored < len(tokens):
        start = min(start, len(tokens) - 1 - length)
        labels = list(tokens[start + 1 : start + 1 + length])
        known = scored - (start + 1)
        rows.append((list(tokens[start : start + length]), [IGNORED] * known + labels[known:]))
        scored, start = start + 1 + length, start + stride
    return rows


def load(
    source: str, *, device: str = "auto", format: WeightFormat = "float32", threads: int | None = None
) -> LoadedModel:
    """The model of a run directory, a checkpoint or a Hugging Face folder, ready to be used in this process. It
    computes with so many `threads`; without a number with those that other work leaves free, unless OMP_NUM_THREADS or
    torch.set_num_threads has said it.

    >>> model = paddock.load("runs/tour")
    >>> model.generate(["The class", "A function"], max_new_tokens=20, temperature=0)
    >>> for number, piece in model.generate("The class", stream=True): print(piece, end="")
    >>> model.perplexity("The class statement defines a class.")
    """
    check_type("threads", threads, int)
    if threads is not None and threads < 1:
        raise bad_value("threads", threads, "a process has at least one", "leave it out")
    adapter = select(device)
    prepare(adapter)
    trained = open_trained(str(source), adapter.torch_device(0))
    set_format(trained.model, format)
    return LoadedModel(trained, threads)
