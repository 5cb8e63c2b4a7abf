"""EleutherAI's harness (lm-eval) over a model of ours: `lm_eval --model paddock --model_args run=DIR`.

It finds the class by the entry point `lm_eval.models`, which its versions after 0.4.13 look for. Earlier ones know no
models but their own; this file then stands for their command: `python -m paddock.evaluation.harness --model paddock …`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import model_registry
from lm_eval.config.evaluate_config import EvaluatorConfig
from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tqdm import tqdm

from paddock.data.loading.sampler import by_tokens
from paddock.data.measuring.continuations import ask_for_last, is_right, join_continuations
from paddock.devices import prepare, select
from paddock.errors import ConfigError, DataError, UserError, bad_value, did_you_mean
from paddock.inference.generation.generate import generate
from paddock.inference.generation.options import GenerationOptions
from paddock.inference.generation.text_stream import StoppingText
from paddock.inference.outputs import outputs_of
from paddock.inference.trained import need_tokenizer, open_trained
from paddock.models.layers.basic import widest
from paddock.parallel.placement import to_device

MAX_NEW_TOKENS = 256
"""Where a task does not say how much to write: the harness's own number."""
UNASKED = {field.name: field.default for field in fields(EvaluatorConfig)}
"""What the harness takes where nobody says anything."""
Pair = tuple[list[int], list[int]]
"""The tokens of a context, of which there is at least one, and those of its continuation."""
Scored = tuple[float, bool]
"""The log probability of a continuation, and whether it is what greedy decoding gives."""


class AskedModel:
    """A run, a checkpoint or a Hugging Face folder that says how likely continuations are, and continues texts."""

    def __init__(self, run: str, device: str, tokens_at_once: int) -> None:
        name, _, index = device.partition(":")
        self._adapter, self._tokens_at_once = select(name), tokens_at_once
        prepare(self._adapter)
        self._place = self._adapter.torch_device(int(index or 0))
        trained = open_trained(run, self._place)
        context = trained.model.config.longest_sequence()
        if trained.model.writes != "tokens" or context is None:
            fix = "take a language model, such as GPT-2"
            raise ConfigError(f"{run} does not continue texts", why="the harness asks for what comes next", fix=fix)
        self.model, self.tokenizer, self.max_length = trained.model, need_tokenizer(trained), context
        if self.tokenizer.end_of_text_id is None:
            why = "a text that nothing stands before begins behind one"
            raise DataError(f"the tokenizer of {run} has no end-of-text token", why=why)
        self.end = self.tokenizer.end_of_text_id
        self._products = self._adapter.choose_products("auto", self.model.config.num_parameters())

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode_plain([text])[0]

    def encode_pair(self, context: str, continuation: str) -> Pair:
        """As the harness cuts them: blanks between them belong to the continuation, whose tokens are those that the
        whole text has behind the context's. Without a context, an end-of-text token stands there."""
        before = context.rstrip()
        continuation = context[len(before) :] + continuation
        whole = self.encode(before + continuation)
        if before:
            tokens = self.encode(before)
            return tokens, whole[len(tokens) :]
        return (whole[:1], whole[1:]) if whole[:1] == [self.end] else ([self.end], whole)

    def score(self, pairs: Sequence[Pair], disable_tqdm: bool) -> list[Scored]:
        """What is longer than the model's context loses its beginning."""
        asked = [self._ask(*pair) for pair in pairs]
        found: dict[int, Scored] = {}
        with self._adapter.using_products(self._products), tqdm(total=len(asked), disable=disable_tqdm) as bar:
            for numbers in by_tokens([len(one["tokens"]) for one in asked], self._tokens_at_once):
                found |= zip(numbers, self._score([asked[number] for number in numbers]), strict=True)
                bar.update(len(numbers))
        return [found[number] for number in range(len(asked))]

    def _ask(self, context: list[int], continuation: list[int]) -> dict[str, Any]:
        if not 0 < len(continuation) <= self.max_length:
            raise DataError(
                f"a continuation has {len(continuation)} tokens",
                why=f"the model can be asked for 1 to {self.max_length} at once",
            )
        tokens = np.array([*context, *continuation][-self.max_length - 1 :], dtype=np.int64)
        return ask_for_last(tokens, len(continuation))

    def _score(self, asked: Sequence[dict[str, Any]]) -> list[Scored]:
        batch = to_device(join_continuations(asked, self.max_length), self._place)
        labels = batch.pop("labels")
        likely, likeliest = outputs_of(self.model, {**batch, "targets": labels}).float().unbind(-1)
        return list(zip(widest(likely).sum(-1).tolist(), is_right(labels, likeliest).tolist(), strict=True))

    def write(self, prompts: Sequence[str], settings: dict[str, Any]) -> list[str]:
        """Continuations up to a stop string; prompts lose their beginning where there would be no room to write."""
        options, stops = self._options(settings)
        room = self.max_length - options.max_new_tokens
        tokens = [(self.encode(prompt) or [self.end])[-room:] for prompt in prompts]
        texts = [StoppingText(self.tokenizer.decode, stops) for _ in prompts]

        def on_token(sequence: int, token: int) -> bool:
            texts[sequence].push(token)
            return texts[sequence].stopped

        with self._adapter.using_products(self._products):
            generate(self.model, tokens, options, on_token)
        for text in texts:
            text.finish()
        return [text.text for text in texts]

    def _options(self, settings: dict[str, Any]) -> tuple[GenerationOptions, list[str]]:
        given = dict(normalize_gen_kwargs(settings, MAX_NEW_TOKENS))
        stops, new = given.pop("until"), int(given.pop("max_gen_toks"))
        if not given.pop("do_sample"):
            given["temperature"] = 0.0
        known = [field.name for field in fields(GenerationOptions) if field.name != "logprobs"]  # nobody is told
        for name in given:
            if name not in known:
                raise ConfigError(f"gen_kwargs: {name}", why="there is no such option", fix=did_you_mean(name, known))
        if new >= self.max_length:
            why = f"the model's context is {self.max_length}: there is no room for what is continued"
            raise bad_value("max_gen_toks", new, why, f"set it below {self.max_length}: --gen_kwargs max_gen_toks=…")
        options = GenerationOptions(**{**given, "max_new_tokens": new, "stop_token": self.end})
        return options, [stop for stop in stops if stop]


class PaddockLM(LM):
    """Such a model as the harness wants it: in one process, on one device."""

    def __init__(
        self,
        run: str,
        tokens_at_once: int | str = 8192,
        device: str | None = None,
        batch_size: Any = None,
        max_batch_size: Any = None,
    ) -> None:
        """The harness gives every model a device and a batch size, whether or not anybody asked for them. The device
        that it names where nobody did is taken for auto; batches are bounded by their tokens instead."""
        super().__init__()
        usual = device in (None, UNASKED.get("device"))
        self.asked = AskedModel(run, "auto" if usual else str(device), int(tokens_at_once))

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = False) -> list[Scored]:
        found = self.asked.score([self.asked.encode_pair(*request.args) for request in requests], disable_tqdm)
        for request, scored in zip(requests, found, strict=True):
            self.cache_hook.add_partial("loglikelihood", request.args, scored)
        return found

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """Each text behind an end-of-text token, in windows that follow each other, those of all texts together."""
        windows: list[Pair] = []
        ends = [0]
        for (text,) in (request.args for request in requests):
            tokens = self.asked.encode(text)
            rolling = get_rolling_token_windows(tokens, self.asked.end, self.asked.max_length, context_len=1)
            windows += [make_disjoint_window(window) for window in rolling]
            ends.append(len(windows))
        scores = [score for score, _ in self.asked.score(windows, disable_tqdm)]
        found = [sum(scores[begin:end]) for begin, end in zip(ends, ends[1:], strict=False)]
        for request, total in zip(requests, found, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return found

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Those with the same settings together."""
        alike: dict[str, list[int]] = {}
        for number, request in enumerate(requests):
            alike.setdefault(json.dumps(request.args[1], sort_keys=True), []).append(number)
        found: dict[int, str] = {}
        with tqdm(total=len(requests), disable=disable_tqdm) as bar:
            for settings, numbers in alike.items():
                texts = self.asked.write([requests[number].args[0] for number in numbers], json.loads(settings))
                found |= zip(numbers, texts, strict=True)
                bar.update(len(numbers))
        for number, request in enumerate(requests):
            self.cache_hook.add_partial("generate_until", request.args, found[number])
        return [found[number] for number in range(len(requests))]


def main() -> None:
    """The harness's own command, which then knows the model."""
    import lm_eval.models  # noqa: F401 (its own models, which it else registers where there are none yet)
    from lm_eval.__main__ import cli_evaluate

    if "paddock" not in model_registry:
        model_registry.register("paddock", target=f"{__spec__.name}:{PaddockLM.__name__}")
    try:
        cli_evaluate()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
