"""`paddock VERB …`: find the verb, run it, and turn errors into messages and exit codes."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import sys
from importlib import import_module

from paddock import __version__
from paddock.errors import DataError, UserError, did_you_mean, shown
from paddock.process import claim, leave, machine_lacks
from paddock.streams import lead_nowhere, open_closed_streams, outliving_readers

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
    "doctor": "what this machine has, and whether the machines of a job fit together",
}


REFUSED_PATHS = (errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENOTDIR)
"""What the file system says of a path that is the user's matter, wherever it is first looked at."""
NARROWEST, WIDEST = 40, 400
"""Columns that pages are laid out for: in a few, the library that breaks their lines never comes to an end."""


def main(arguments: list[str] | None = None) -> None:
    """The `paddock` command."""
    claim()
    open_closed_streams()
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # looking for some takes a tenth of a help page's time
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    _limit_columns()
    if not {"-h", "--help"}.isdisjoint(arguments):
        gc.disable()  # the process ends with the page, which takes a twentieth less time
    with outliving_readers("stderr"):  # remarks and errors that nobody hears are no reason to end
        code = run(arguments)
    if "RANK" in os.environ:  # torchrun started this process and others
        leave(code)
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    debug = "--debug" in arguments
    if debug:
        arguments.remove("--debug")
    try:
        if not arguments or arguments[0] in ("-h", "--help"):
            print(overview())
            return 0
        if arguments[0] in ("-V", "--version", "version"):
            print(f"paddock {__version__}")
            return 0
        verb, rest = arguments[0], arguments[1:]
        if verb not in VERBS:
            print(f'error: there is no verb "{verb}"\n  fix: {did_you_mean(verb, list(VERBS))}', file=sys.stderr)
            return 2
        code: int | None = import_module(f"paddock.cli.{verb.replace('-', '_')}").main(rest)
        sys.stdout.flush()
        return code or 0
    except UserError as error:
        if debug:
            raise
        report(error)
        return error.exit_code
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output (head, less) has gone: that is its right, and not an error of ours.
        lead_nowhere(sys.stdout)
        return 0
    except Exception as error:
        told = None if debug else _refused_path(error) or machine_lacks(error)
        if told is None:
            raise
        report(told)
        return told.exit_code


def _refused_path(error: Exception) -> UserError | None:
    """What to say where the file system refused a path that somebody gave."""
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


def report(error: UserError) -> None:
    """Print an error for people; where it came from another process, that process's own words first."""
    trace = getattr(error, "traceback", "")
    if trace:
        print(trace.rstrip(), file=sys.stderr)
    print(f"error: {error}", file=sys.stderr)


def overview() -> str:
    """The page behind `paddock --help`."""
    lines = [
        f"paddock {__version__}: the same model, on any device, in any layout, gives the same loss.",
        "",
        "usage: paddock VERB …          paddock VERB --help explains a verb",
        "",
    ]
    lines += [f"  {verb:<14} {meaning}" for verb, meaning in VERBS.items()]
    lines += [
        "",
        "try:",
        "  paddock train gpt2/tiny                    pretrain a small GPT-2 on the Python language reference",
        "  paddock train gpt2/tiny --nproc-per-node 2 the same, with two data-parallel processes",
        "  paddock doctor                             what this machine can do",
        "",
        "exit codes: 0 done, 1 unexpected, 2 config or usage, 3 environment or launch, 4 data, 5 numerics,",
        "            6 hang, 7 a check failed, 8 stopped by a signal: saved, and `paddock resume` goes on.",
        "            --debug shows the stack trace behind an error.",
    ]
    return "\n".join(lines)
