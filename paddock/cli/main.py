"""`paddock VERB …`: find the verb, run it, and turn errors into messages and exit codes."""

from __future__ import annotations

import errno
import gc
import json
import os
import shutil
import sys
from contextlib import suppress
from importlib import import_module

from paddock import __version__
from paddock.cli.pages import show_page
from paddock.cores import begin_watching
from paddock.errors import ConfigError, DataError, MachineError, UserError, did_you_mean, shown
from paddock.phases import is_live, is_main_process
from paddock.process import claim, leave, machine_lacks
from paddock.streams import (
    MARKS,
    STANDARD_OUTPUT,
    broken_between_words,
    lead_nowhere,
    let_every_text_pass,
    named_output,
    open_closed_streams,
    outliving_readers,
)

VERBS = {
    "train": "train the model of a recipe",
    "resume": "go on with a run that was stopped, or further than it went",
    "evaluate": "what a trained model is worth on the whole validation set",
    "generate": "let a trained model continue your text",
    "predict": "answer questions, or tell what a text or an image is, with a trained model",
    "benchmark": "how fast a recipe's model computes on this machine; needs no data",
    "convert": "checkpoints to and from Hugging Face folders",
    "convert-config": "another system's config as a recipe: MindFormers' YAML, LiBai's Python",
    "flags": "what a flag or a key of another system is called here",
    "preprocess": "text to indexed tokens, ready for training",
    "data": "look into indexed corpora, join them, check them",
    "check": "check a recipe before it runs",
    "align": "compare a run with a reference: another device, layout or program",
    "runs": "the runs that are there: list, show, compare, plot, remove",
    "report": "a page on one run or several, with their curves; also as SVG, PNG, CSV, JSON",
    "zoo": "the recipes that come with Paddock; contributions made, checked and wrapped",
    "ranktable": "rank tables of several servers: made, joined, checked",
    "launch": "start a command on a cluster: SLURM, Kubernetes, ssh, containers",
    "doctor": "what this machine has, and whether the machines of a job fit together",
    "recipe": "print a recipe with what its fields mean, or copy it to change it",
    "cache": "what is kept for next time, how large and how old it is; cleaning it",
    "completion": "a script with which a shell completes commands",
}


REFUSED_PATHS = (errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENOTDIR)
"""What the file system says of a path that is the user's matter, wherever it is first looked at."""
TAKE_RECIPES = ("train", "resume", "evaluate", "benchmark")
INTERRUPTED = 130
"""The exit code of what Ctrl-C ended, as shells have it."""
COLOURS = {"error:": "\x1b[1;31m", "why:": "\x1b[33m", "fix:": "\x1b[32m"}
NARROWEST, WIDEST = 40, 400
"""Columns that pages are laid out for: in a few, the library that breaks their lines never comes to an end."""


def main(arguments: list[str] | None = None) -> None:
    """The `paddock` command."""
    claim()
    begin_watching()
    open_closed_streams()
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # looking for some takes a tenth of a help page's time
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    _limit_columns()
    if not {"-h", "--help"}.isdisjoint(arguments):
        gc.disable()  # the process ends with the page, which takes a twentieth less time
    let_every_text_pass(as_json="--json" in arguments)
    # Remarks and errors that nobody hears are no reason to end; results that nobody gets are.
    with outliving_readers("stderr"), named_output():
        code = run(arguments)
    if "RANK" in os.environ:  # torchrun started this process and others
        leave(code)
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    debug, as_json = "--debug" in arguments, "--json" in arguments
    if debug:
        arguments.remove("--debug")
    try:
        try:
            code = _run(arguments)
        except SystemExit:  # how a page of help ends
            sys.stdout.flush()
            raise
        sys.stdout.flush()
        return code
    except UserError as error:
        if debug:
            raise
        report(error, as_json)
        return error.exit_code
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        if as_json:
            _print_json(UserError("interrupted"), INTERRUPTED)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (head, less) has gone: that is its right, and not an error of ours.
        lead_nowhere(sys.stdout)
        return 0
    except Exception as error:
        told = None if debug else _full_output(error) or _refused_path(error) or machine_lacks(error)
        if told is None:
            if as_json:
                _print_json(UserError(f"{type(error).__name__}: {error}", why="this is a defect of Paddock"), 1)
            raise
        report(told, as_json)
        return told.exit_code


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help") or arguments == ["help"]:
        show_page(overview())
        return 0
    if arguments[0] in ("-V", "--version", "version"):
        print(f"paddock {__version__}")
        return 0
    verb, *rest = _asked_help(arguments[1:]) if arguments[0] == "help" else arguments
    if verb not in VERBS:
        raise ConfigError(f'there is no verb "{verb}"', fix=did_you_mean(verb, list(VERBS)))
    code: int | None = import_module(f"paddock.cli.{verb.replace('-', '_')}").main(rest)
    return code or 0


def _asked_help(words: list[str]) -> list[str]:
    """`paddock help train` and `paddock help zoo check` as they are otherwise asked for; behind a verb that takes a
    recipe, a word is a section of it."""
    is_section = words[0] in TAKE_RECIPES
    return [words[0], "--help", *words[1:]] if is_section else [*words, "--help"]


def _full_output(error: Exception) -> UserError | None:
    """What to say where a result could not be written."""
    if not isinstance(error, OSError) or error.filename != STANDARD_OUTPUT:
        return None
    fix = "free some space, or send it somewhere else"
    return MachineError("standard output cannot be written", why=error.strerror or str(error), fix=fix)


def _refused_path(error: Exception) -> UserError | None:
    """What to say where the file system refused a path that somebody gave."""
    if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop"):  # pathlib's own, until Python 3.13
        return DataError("a path cannot be used", why=str(error), fix="remove the link that leads to itself")
    if not isinstance(error, OSError) or error.errno not in REFUSED_PATHS or error.filename is None:
        return None
    what = f"{shown(error.filename)} cannot be used"
    return DataError(what, why=error.strerror or str(error), fix="check the path")


def _limit_columns() -> None:
    """Let a terminal of one column, or an environment that says so, count as a narrow one."""
    for name in ("COLUMNS", "LINES"):
        value = os.environ.get(name, "80")
        if not (value.isascii() and value.isdecimal() and len(value) < 10):
            del os.environ[name]
    columns = shutil.get_terminal_size().columns
    if not NARROWEST <= columns <= WIDEST:
        os.environ["COLUMNS"] = str(min(max(columns, NARROWEST), WIDEST))


def report(error: UserError, as_json: bool = False) -> None:
    """Print an error for people; where it came from another process, that process's own words first. `as_json`, whoever
    reads standard output gets it, too, as one line."""
    trace = getattr(error, "traceback", "")
    if trace:
        print(trace.rstrip(), file=sys.stderr)
    text = f"error: {error}"
    if is_live():
        text = broken_between_words(text, shutil.get_terminal_size().columns)
    if is_live() and not os.environ.get("NO_COLOR"):
        text = MARKS.sub(lambda mark: f"{COLOURS[mark[0].strip()]}{mark[0]}\x1b[0m", text)
    print(text, file=sys.stderr)
    if as_json and not error.follows_result:
        _print_json(error, error.exit_code)


def _print_json(error: UserError, code: int) -> None:
    """One process of a job does. Where nobody can get it, the error has been told on standard error."""
    if is_main_process():
        told = {"error": error.what, "why": error.why, "fix": error.fix, "code": code}
        with suppress(OSError):
            print(json.dumps(told, ensure_ascii=False), flush=True)


def overview() -> str:
    """The page behind `paddock --help`."""
    lines = [
        f"paddock {__version__}: the same model, on any device, in any layout, gives the same loss.",
        "",
        "usage: paddock VERB …",
        "  paddock help VERB            what a verb does and takes; so does --help behind it",
        "  paddock VERB --help SECTION  one section of the recipe, such as optimizer",
        "",
    ]
    lines += [f"  {verb:<15} {meaning}" for verb, meaning in VERBS.items()]
    lines += [
        "",
        "try:",
        "  paddock train gpt2/tiny",
        "    pretrain a small GPT-2 on the Python language reference",
        "  paddock train gpt2/tiny --nproc-per-node 2",
        "    the same, with two data-parallel processes",
        "  paddock doctor",
        "    what this machine can do",
        "",
        "exit codes: 0 done, 1 unexpected, 2 config or usage, 3 environment or launch, 4 data, 5 numerics,",
        "  6 hang, 7 a check failed, 8 stopped by a signal: saved, and `paddock resume` goes on.",
        "--debug shows the stack trace behind an error; with --json it is a line on standard output, too:",
        '  {"error": what, "why": why, "fix": what to do, "code": the exit code}.',
    ]
    return "\n".join(lines)
