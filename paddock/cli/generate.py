"""`paddock generate RUN|MODEL`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

import tyro

from paddock.cli.arguments import parse
from paddock.errors import DataError
from paddock.files import open_text

LARGEST_FILE = 2**26
"""Characters of prompts."""


@dataclass(frozen=True)
class GenerateOptions:
    """Let a trained model continue your text, or answer it (T5: translate, summarize, fill in).

    MODEL is a run directory, a checkpoint, or a Hugging Face folder. Text goes to standard output; on a terminal it
    appears as it is generated."""

    model: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")]
    """A run directory, a checkpoint or a Hugging Face folder."""
    prompt: tuple[str, ...] = ()
    """One or more texts to continue, or to answer."""
    prompt_file: Path | None = None
    """A file with a prompt on each line."""
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
    num_beams: int = 1
    """Beam search: follow so many of the likeliest texts at once, and give the best."""
    length_penalty: float = 1.0
    """Beam search: above 0 favours longer texts, below 0 shorter ones."""
    early_stopping: Literal["true", "false", "never"] = "false"
    """Beam search: end when num_beams texts are finished (true), when no better one is likely (false), or when none is
    possible (never)."""
    device: str = "auto"
    """auto, or a name that `paddock doctor` lists."""
    json: bool = False
    """Print a JSON list of {prompt, text, tokens}."""


def main(arguments: list[str]) -> None:
    options = parse(GenerateOptions, "generate", arguments)
    prompts = list(options.prompt) + _read_prompts(options.prompt_file)
    from paddock.inference.options import GenerationOptions
    from paddock.jobs.generate import continue_text

    early: dict[str, bool | Literal["never"]] = {"true": True, "false": False, "never": "never"}
    names = {field.name for field in fields(GenerationOptions)}
    given = {name: value for name, value in vars(options).items() if name in names}
    chosen = GenerationOptions(**{**given, "early_stopping": early[options.early_stopping]})
    live = sys.stdout.isatty() and not options.json and len(prompts) * options.num_return_sequences == 1
    show = _print_as_it_comes if live else None
    results = continue_text(options.model, prompts, chosen, options.device, show, options.stop)
    if options.json:
        print(json.dumps([asdict(result) for result in results], ensure_ascii=False))
    elif not live:
        print("\n\n".join((result.prompt if result.continues else "") + result.text for result in results))


def _read_prompts(path: Path | None) -> list[str]:
    if path is None:
        return []
    try:
        with open_text(path) as stream:
            text = stream.read(LARGEST_FILE + 1)
        if len(text) > LARGEST_FILE:
            raise DataError(f"--prompt-file {path} has more than {LARGEST_FILE:,} characters", fix="give fewer at once")
        return [line for line in text.splitlines() if line.strip()]
    except OSError as error:
        raise DataError(f"cannot read --prompt-file {path}", why=error.strerror or "") from None
    except UnicodeDecodeError:
        raise DataError(f"--prompt-file {path} is not text in UTF-8") from None


def _print_as_it_comes(text: str) -> None:
    """Show text on a terminal the moment it is there."""
    sys.stdout.write(text)
    sys.stdout.flush()
