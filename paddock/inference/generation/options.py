"""How a continuation is chosen, and where it ends."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from typing import Literal

from paddock.arguments import check_type
from paddock.errors import bad_value


@dataclass(frozen=True)
class GenerationOptions:
    """Sampling, greedy (temperature 0), or beam search (several beams). Wherever Python writes text, these are its
    arguments.

    >>> GenerationOptions(max_new_tokens=20, top_p=0.9, seed=1)
    >>> loaded.generate("The class", max_new_tokens=20, num_beams=4)
    """

    max_new_tokens: int = 100
    temperature: float | None = None
    """Divides the logits; 0 always takes the likeliest token. None is 0.8 where a text is continued, and 0 where one is
    answered or there are beams."""
    top_k: int | None = None
    """Choose among this many of the likeliest tokens; None is all."""
    top_p: float | None = None
    """Choose among the likeliest tokens that together just reach this probability; None is all."""
    min_p: float | None = None
    """Choose among tokens that are at least this times as likely as the likeliest; None is all."""
    typical_p: float | None = None
    """Choose among the tokens whose surprise is nearest to what is expected, as many as together reach this
    probability (locally typical sampling); None is all."""
    seed: int = 0
    num_return_sequences: int = 1
    """Continuations of each prompt."""
    stop_token: int | None = None
    """A sequence ends before this token: end-of-text, usually."""
    min_new_tokens: int = 0
    """The stop token does not come before so many others."""
    repetition_penalty: float = 1.0
    """What was said becomes less likely: its logits are divided by this where positive, else multiplied."""
    no_repeat_ngram_size: int = 0
    """No so many tokens in a row come twice; 0: they may."""
    logprobs: int | None = None
    """Tell the log probability of every token that is chosen, and of so many of the likeliest, as the model has them:
    before temperature and all that follows. None: tell nothing."""
    num_beams: int = 1
    """Beam search: how many continuations are followed at once."""
    length_penalty: float = 1.0
    """Beam search: a finished continuation's log-probability is divided by its length to this power."""
    early_stopping: bool | Literal["never"] = False
    """Beam search: end when as many are finished as there are beams (True), when those that go on are unlikely to
    become better at their present length (False), or when they cannot at any ("never")."""

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is always taken.

        >>> GenerationOptions(temperature=0).greedy
        """
        return self.temperature == 0

    def with_temperature(self, *, continues: bool) -> GenerationOptions:
        """The same with the usual temperature where none is given.

        >>> GenerationOptions().with_temperature(continues=True).temperature
        """
        usual = 0.8 if continues and self.num_beams == 1 else 0.0
        return self if self.temperature is not None else replace(self, temperature=usual)

    def check(self) -> None:
        """Raise a ConfigError for anything that cannot be, or would be ignored.

        >>> GenerationOptions(max_new_tokens=20, temperature=0).check()
        """
        self._check_types()
        if self.max_new_tokens < 1:
            raise bad_value("max_new_tokens", self.max_new_tokens, "nothing to generate", "at least 1")
        if self.temperature is not None and not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise bad_value("temperature", self.temperature, "it divides the logits", "0 (greedy) or more")
        if self.top_k is not None and self.top_k < 1:
            raise bad_value("top_k", self.top_k, "no token would be left", "at least 1; without it, all")
        for field in ("top_p", "min_p", "typical_p"):
            value = getattr(self, field)
            if value is not None and not 0 < value <= 1:
                raise bad_value(field, value, "it is a probability", "above 0 and at most 1")
        if not (math.isfinite(self.repetition_penalty) and self.repetition_penalty > 0):
            raise bad_value("repetition_penalty", self.repetition_penalty, "logits are divided by it", "above 0")
        if not 0 <= self.min_new_tokens <= self.max_new_tokens:
            why = f"at most {self.max_new_tokens} tokens are written (max_new_tokens)"
            raise bad_value("min_new_tokens", self.min_new_tokens, why, f"between 0 and {self.max_new_tokens}")
        if self.logprobs is not None and self.logprobs < 0:
            raise bad_value("logprobs", self.logprobs, "it is a count", "0 or more")
        for field in ("num_return_sequences", "num_beams"):
            if getattr(self, field) < 1:
                raise bad_value(field, getattr(self, field), "it is a count", "at least 1")
        if self.no_repeat_ngram_size < 0:
            raise bad_value("no_repeat_ngram_size", self.no_repeat_ngram_size, "it is a count", "0 or more")
        if not math.isfinite(self.length_penalty):
            raise bad_value("length_penalty", self.length_penalty, "scores are divided by it", "1 or another number")
        if self.greedy:
            self._check_greedy()
        if self.num_beams > 1:
            self._check_beams()
        else:
            self._check_no_beams()

    def _check_types(self) -> None:
        """Numbers of numpy's are numbers, too."""
        for field in fields(self):
            value, kind = getattr(self, field.name), str(field.type)
            if value is None and field.default is not None:
                raise bad_value(field.name, value, "it has to be something", "leave it out")
            if field.name != "early_stopping":
                is_whole = kind.startswith("int")
                example = field.default or (5 if is_whole else 0.9)
                check_type(field.name, value, Integral if is_whole else Real, fix=f"such as {field.name}={example}")
            elif value not in (True, False, "never"):
                raise bad_value(field.name, repr(value), "there is no such choice", 'True, False or "never"')

    def _check_greedy(self) -> None:
        for field in ("top_k", "top_p", "min_p", "typical_p"):
            value = getattr(self, field)
            if value is not None:
                raise bad_value(
                    field,
                    value,
                    "temperature 0 takes the likeliest token, so this would be ignored",
                    f"leave out {field}, or give a temperature above 0",
                )
        if self.num_return_sequences > 1 and self.num_beams == 1:
            raise bad_value(
                "num_return_sequences",
                self.num_return_sequences,
                "with temperature 0 all of them would be the same",
                "1, or a temperature above 0, or as many beams (num_beams)",
            )

    def _check_beams(self) -> None:
        if self.temperature is not None and not self.greedy:
            why = "beam search follows the likeliest continuations: nothing is drawn"
            raise bad_value("temperature", self.temperature, why, "0 with num_beams, or num_beams 1")
        if self.logprobs is not None:
            raise bad_value("logprobs", self.logprobs, "beams are told when they end, by their tokens", "num_beams 1")
        if self.num_return_sequences > self.num_beams:
            why = f"there are {self.num_beams} beams, each of which ends as one"
            raise bad_value("num_return_sequences", self.num_return_sequences, why, f"at most {self.num_beams}")

    def _check_no_beams(self) -> None:
        for field, default in (("length_penalty", 1.0), ("early_stopping", False)):
            if getattr(self, field) != default:
                why = "it belongs to beam search, and there is one beam: it would be ignored"
                raise bad_value(field, getattr(self, field), why, "leave it out, or give num_beams 2 or more")
