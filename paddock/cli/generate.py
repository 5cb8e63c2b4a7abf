"""`paddock generate RUN|MODEL`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from paddock.cli.arguments import parse, place
from paddock.launch.options import LaunchOptions
from paddock.phases import starting

if TYPE_CHECKING:
    from paddock.inference.generation.text_generator import Continuation, LikelyToken
    from paddock.jobs.generate import TextJob


@dataclass(frozen=True)
class WritingLayout:
    """How the model lies over the processes: data × tensor × pipeline of them."""

    data: int | None = None
    """Data parallel size: copies of the model, which share out the prompts; None is what the others leave."""
    tensor: int = 1
    """Tensor parallel size: processes that share every layer."""
    pipeline: int = 1
    """Pipeline parallel size: processes that the layers are cut over."""
    stages: tuple[int, ...] | None = None
    """The stage of every layer, such as 0 0 0 1 1 1; None balances them by cost."""


@dataclass(frozen=True)
class GenerateOptions:
    """Let a trained model continue your text, or answer it (T5: translate, summarize, fill in).

    MODEL is a run directory, a checkpoint, or a Hugging Face folder. Text goes to standard output; on a terminal it
    appears as it is generated. Several processes share the prompts (data parallel) or the model (tensor, pipeline):
    the texts are those of one process."""

    model: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")]
    """A run directory, a checkpoint or a Hugging Face folder."""
    prompt: tuple[str, ...] = ()
    """One or more texts to continue, or to answer; an empty one begins a document."""
    prompt_file: Path | None = None
    """A file with a prompt on each line; all are checked before the model starts."""
    max_new_tokens: int = 64
    """Tokens to add, at most."""
    temperature: float | None = None
    """Randomness; 0 always takes the likeliest token. Without it 0.8 where a text is continued, and 0 where it is
    answered or there are beams."""
    top_k: int | None = None
    """Choose among this many of the likeliest tokens."""
    top_p: float | None = None
    """Choose among the likeliest tokens that together reach this probability."""
    min_p: float | None = None
    """Choose among tokens at least this times as likely as the likeliest."""
    typical_p: float | None = None
    """Choose among the tokens of the most expected surprise that together reach this probability."""
    seed: int = 0
    """The same seed gives the same text."""
    num_return_sequences: int = 1
    """Continuations of each prompt."""
    stop: tuple[str, ...] = ()
    """End a text before the first of these strings that comes."""
    min_new_tokens: int = 0
    """Tokens to add at least, before the model may end."""
    repetition_penalty: float = 1.0
    """Above 1, what was said becomes less likely."""
    no_repeat_ngram_size: int = 0
    """No so many tokens in a row come twice; 0: they may."""
    logprobs: int | None = None
    """Tell how likely the model found every token that it wrote, and so many of the likeliest in its place, as natural
    logarithms of their probabilities (before temperature and what restricts it)."""
    num_beams: int = 1
    """Beam search: follow so many of the likeliest texts at once, and give the best."""
    length_penalty: float = 1.0
    """Beam search: above 0 favours longer texts, below 0 shorter ones."""
    early_stopping: Literal["true", "false", "never"] = "false"
    """Beam search: end when num_beams texts are finished (true), when no better one is likely (false), or when none is
    possible (never)."""
    max_batch: int = 32
    """Sequences that are written at once, at most."""
    cache_gigabytes: float = 2.0
    """Memory for keys and values of what is being written, in each process, at most."""
    output: Path | None = None
    """Write the texts to this file, a JSON object a line, and go on there if the same command was stopped."""
    format: Literal["float32", "bfloat16", "int8", "int8-dynamic"] = "float32"
    """What the weights are in. bfloat16 halves what is read for every token; int8 (weights alone, computing in
    bfloat16) and int8-dynamic (what they are multiplied by, too) quarter it, on a CPU, and change the model a bit."""
    device: str = "auto"
    """auto, or a name that `paddock doctor` lists."""
    json: bool = False
    """Print a JSON list of {prompt, text, tokens, continues}, and logprobs where they are asked for."""
    parallel: WritingLayout = field(default_factory=WritingLayout)
    launch: Annotated[LaunchOptions, tyro.conf.arg(name="", help="")] = field(default_factory=LaunchOptions)


def main(arguments: list[str]) -> None:
    options = parse(GenerateOptions, "generate", arguments)
    from paddock.config.load import refuse_recipe

    refuse_recipe(options.model, "generate")
    alone = len(options.prompt) * options.num_return_sequences == 1 and options.prompt_file is None
    live = sys.stdout.isatty() and not options.json and options.output is None and alone
    launch = place(options.launch, arguments, ["generate", *arguments])
    with starting(launch.node_rank):
        from paddock.jobs.generate import continue_text

        texts = continue_text(_job(options), launch, options.output, live=live)
        if options.output is not None:
            if count := sum(1 for _ in texts):
                print(f"{count} texts: {options.output}", file=sys.stderr)
        elif options.json:
            _print_json(texts)
        else:
            _print_texts(texts, live)


def _job(options: GenerateOptions) -> TextJob:
    from paddock.inference.generation.options import GenerationOptions
    from paddock.jobs.generate import TextJob

    early: dict[str, bool | Literal["never"]] = {"true": True, "false": False, "never": "never"}
    names = {field.name for field in fields(GenerationOptions)}
    given = {name: value for name, value in vars(options).items() if name in names}
    return TextJob(
        options.model,
        GenerationOptions(**{**given, "early_stopping": early[options.early_stopping]}),
        options.prompt,
        None if options.prompt_file is None else str(options.prompt_file),
        options.stop,
        options.device,
        options.format,
        {name: value for name, value in vars(options.parallel).items() if value is not None},
        options.max_batch,
        round(options.cache_gigabytes * 1e9),
    )


def _print_texts(texts: Iterable[Continuation], live: bool) -> None:
    """One behind the other; what was shown while it was written is there already."""
    from paddock.telemetry.screen.terminal import for_terminal

    for number, text in enumerate(texts):
        if not live:
            print(for_terminal(("\n" if number else "") + (text.prompt if text.continues else "") + text.text))
        for token in text.logprobs or ():
            print(for_terminal("  ".join(_likely(one) for one in [token, *token["top"]]), r"\u{:04x}"))


def _likely(one: LikelyToken) -> str:
    return f"{one['logprob']:8.4f} {json.dumps(one['text'], ensure_ascii=False)}"


def _print_json(texts: Iterable[Continuation]) -> None:
    """A list, one text at a time: there may be many."""
    from paddock.telemetry.screen.terminal import for_terminal

    opening = "["
    for text in texts:
        print(opening + for_terminal(json.dumps(text.record(), ensure_ascii=False), r"\u{:04x}"), end="")
        opening = ", "
    if opening != "[":  # else these are the texts of another machine
        print("]")
