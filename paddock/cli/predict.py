"""`paddock predict RUN|MODEL`."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from paddock.cli.arguments import parse
from paddock.errors import ConfigError
from paddock.launch.options import LaunchOptions
from paddock.phases import phase

if TYPE_CHECKING:
    from paddock.inference.predictors import Predictor
    from paddock.jobs.predict import Given


@dataclass(frozen=True)
class PredictOptions:
    """Answer questions, or tell what a text or an image is, with a trained model.

    MODEL is a run directory, a checkpoint or a Hugging Face folder; what it was trained for decides what it takes. A
    model that answers questions takes --context and --question, or "context - question"; one that tells texts apart
    takes texts, or --text and --pair; one that writes a target for a source takes sources, or --text; one that fills
    in masked words takes texts with a [MASK]; one that tells images apart takes files. Results go to standard
    output."""

    model: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")]
    """A run directory, a checkpoint or a Hugging Face folder."""
    inputs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="INPUT…")] = ()
    """Texts, or files of images."""
    context: str | None = None
    """Question answering: the text to find answers in."""
    question: tuple[str, ...] = ()
    """Question answering: one or more questions about the context."""
    text: str | None = None
    """Sequence classification: the text; sequence to sequence: the source."""
    pair: str | None = None
    """Sequence classification: the second text, for a model of pairs."""
    input: str | None = None
    """A file with a JSON value a line ({"context", "question"}, {"text"}, {"source"}, or a string; an "id" is
    kept), a .txt with an input a line, - for JSON lines from standard input, or a folder of images."""
    output: Path | None = None
    """Write the results to this file instead: .jsonl or .csv."""
    top_k: int | None = None
    """Answers to each input, at most; None is the usual number of the task: 1, or 5 for images and
    masked words."""
    batch: int = 8
    """Inputs that go through the model at once."""
    on_error: Literal["stop", "skip"] = "stop"
    """An image that cannot be read: stop with its name; or leave it out, and say so."""
    device: str = "auto"
    """auto, or a name that `paddock doctor` lists."""
    threads: int | None = None
    """Threads to compute with, where the host computes. Default: OMP_NUM_THREADS if it is set, else the cores that
    other work leaves free."""
    json: bool = False
    """Print a JSON list of {id, answers}."""


def main(arguments: list[str]) -> None:
    options = parse(PredictOptions, "predict", arguments)
    values = _values(options)
    if not values and options.input is None:
        raise ConfigError(
            "there is nothing to predict",
            fix='give --context "…" --question "…", a text, an image, or --input FILE',
        )
    with ExitStack() as stack:
        with phase("loading the model", with_torch=True):
            from paddock.jobs.predict import check_output, open_predictor, predict, write_predictions
            from paddock.telemetry.screen.terminal import progress_bar

            if options.output is not None:
                check_output(options.output)
            skips, launch = options.on_error == "skip", LaunchOptions(threads=options.threads)
            opened = open_predictor(options.model, options.device, options.batch, skips, launch)
            predictor = stack.enter_context(opened)
        given = _given(predictor, values, options.input)
        with progress_bar("predict", visible=options.input is not None) as on_batch:
            predictions = predict(predictor, given, options.top_k, on_batch, options.device)
    if len(predictions) < len(given):
        print(f"skipped {len(given) - len(predictions)} of {len(given)} images", file=sys.stderr)
    if options.output is not None:
        write_predictions(predictions, options.output)
        print(f"{len(predictions)} predictions in {options.output}", file=sys.stderr)
    elif options.json:
        told = [{"id": one["name"], "answers": one["answers"]} for one in map(asdict, predictions)]
        print(json.dumps(told, ensure_ascii=False))
    else:
        for one in predictions:
            print(predictor.show(one.name, one.answers))


def _values(options: PredictOptions) -> list[tuple[str, Any]]:
    """What the flags hold, and the flags' names."""
    found: list[tuple[str, Any]] = [(f"input {number}", value) for number, value in enumerate(options.inputs, start=1)]
    if options.question and options.context is None:
        raise ConfigError("--question needs --context", why="the answer is looked for in it")
    if options.context is not None and not options.question:
        raise ConfigError("--context needs --question", why="there is nothing to answer")
    for question in options.question:
        found.append(("--context and --question", {"context": options.context, "question": question}))
    if options.pair is not None and options.text is None:
        raise ConfigError("--pair needs --text", why="it is the second of two texts")
    if options.text is not None:
        pair = {} if options.pair is None else {"pair": options.pair}
        found.append(("--text", {"text": options.text, **pair}))
    return found


def _given(predictor: Predictor, values: list[tuple[str, Any]], file: str | None) -> list[Given]:
    from paddock.jobs.predict import Given, read_inputs

    given = []
    for number, (where, value) in enumerate(values, start=1):
        name = value if predictor.suffixes and isinstance(value, str) else str(number)
        given.append(Given(name, where, value))
    return given + (read_inputs(predictor, file) if file is not None else [])
