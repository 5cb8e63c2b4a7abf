"""Standard output and error whose reader may go: a closed pipe or terminal must not end work that is worth its time.

A command that only prints (`paddock data inspect … | head`) ends when nobody reads it any more. One that works goes on:
what it would have said is lost, and what it writes into files is not.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from textwrap import TextWrapper
from typing import IO, Any, TextIO, cast

from paddock.process import is_ours

READER_IS_GONE = (errno.EPIPE, errno.EIO, errno.ENOSPC, errno.EBADF)
"""What a pipe without a reader says, what a terminal says that was closed, a log file on a full disk, and a stream that
this program was started with and that something in it has closed."""
STANDARD_OUTPUT = "standard output"
"""The name of the file, in an error of a `ResultStream`."""
GIVEN_UP = ("strict", "surrogateescape")
"""What a stream does with a text that its encoding lacks, where nobody has said what it should do."""

MARKS = re.compile(r"^(error:|  why:|  fix:)", re.MULTILINE)
"""How the parts of an error begin."""
REMARKS = ("note: ", "warning: ", "prepared ")
"""How lines begin that may be longer than a terminal is wide."""
UNBROKEN = re.compile(r"`[^`]*`|\bpaddock [a-z][^;,]*")
"""What somebody may want to copy from an error: commands stay in one piece."""


class _GuardedStream:
    """A text stream that decides for itself what becomes of what cannot be written."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._attempt(self._stream.write, text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        self._attempt(self._stream.flush)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _attempt(self, action: Any, *arguments: str) -> None:
        """Do it, or what there is to be done instead."""
        action(*arguments)


class LastingStream(_GuardedStream):
    """A text stream that is mute from the moment on at which its reader has gone. On a terminal, remarks are broken
    between words."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._is_mute = False

    def write(self, text: str) -> int:
        words = text
        if text.startswith(REMARKS) and self._stream.isatty():
            words = broken_between_words(text, shutil.get_terminal_size().columns)
        self._attempt(self._stream.write, words)
        return len(text)

    def _attempt(self, action: Any, *arguments: str) -> None:
        if self._is_mute:
            return
        try:
            action(*arguments)
        except OSError as error:
            if error.errno not in READER_IS_GONE:
                raise
            self._is_mute = True
            if is_ours():  # else its owner will meet the same error, and must decide himself
                lead_nowhere(self._stream)


class ResultStream(_GuardedStream):
    """A text stream of results. What it cannot write is an error that has its name, and is met once: what the stream
    still holds is thrown away."""

    def _attempt(self, action: Any, *arguments: str) -> None:
        try:
            action(*arguments)
        except OSError as error:
            if is_ours():
                lead_nowhere(self._stream)
            if error.errno is None or isinstance(error, BrokenPipeError):
                raise
            raise OSError(error.errno, os.strerror(error.errno), STANDARD_OUTPUT) from error


def broken_between_words(text: str, columns: int) -> str:
    """Lines that are too long for a terminal broken between words, each part beneath the one before."""
    lines = []
    for line in text.splitlines():
        mark = MARKS.match(line)
        behind = " " * (len(mark[0]) + 1 if mark else len(line) - len(line.lstrip()))
        breaks = TextWrapper(columns, subsequent_indent=behind, break_long_words=False, break_on_hyphens=False)
        whole = UNBROKEN.sub(lambda found: found[0].replace(" ", "\0"), line)
        lines += [line] if len(line) <= columns else breaks.wrap(whole)
    end = "\n" if text.endswith("\n") else ""
    return "\n".join(lines).replace("\0", " ") + end


@contextmanager
def outliving_readers(*names: str) -> Iterator[None]:
    """Let `sys.stdout` and `sys.stderr`, or those that are named, outlive whoever reads them."""
    before = {name: getattr(sys, name) for name in names or ("stdout", "stderr")}
    for name, stream in before.items():
        setattr(sys, name, stream if stream is None else LastingStream(stream))
    try:
        yield
    finally:
        for name, stream in before.items():
            setattr(sys, name, stream)


@contextmanager
def named_output() -> Iterator[None]:
    """Let standard output be a `ResultStream`; nothing that it holds is left for the interpreter's end."""
    before = sys.stdout
    sys.stdout = cast(TextIO, ResultStream(before))
    try:
        yield
    finally:
        with suppress(OSError):  # whoever runs the command has told of it, or of something worse
            sys.stdout.flush()
        sys.stdout = before


def let_every_text_pass(*, as_json: bool) -> None:
    """Let no character of a help page, a name or a text end a command, whatever encoding the environment asks for: it
    is shown by its number. `as_json`, standard output is for programs, and in UTF-8: there, such a number is JSON."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            if as_json and stream is sys.stdout:
                speak_utf8(stream)
            elif stream.errors in GIVEN_UP and not (is_utf8(stream) and stream.errors == "surrogateescape"):
                stream.reconfigure(errors="backslashreplace")


def speak_utf8(stream: IO[Any]) -> None:
    """Let a stream that programs read be UTF-8; what is half of a character is shown by its number."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(encoding="utf-8", errors="backslashreplace")


def is_utf8(stream: TextIO) -> bool:
    """Whether every character can be written to it."""
    return (stream.encoding or "").casefold().replace("_", "-") in ("utf-8", "utf8")


def lead_nowhere(stream: TextIO) -> None:
    """Throw away what a stream still holds, and what anybody in this process writes to its descriptor from now on:
    the interpreter flushes it at its end, and would complain and change the exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def open_closed_streams() -> None:
    """Give a process that was started without some of its streams (`2>&-`), or lost them since, ones that lead nowhere.
    Otherwise the next file that is opened gets their number, and whatever is printed."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None and _is_open(number):
            continue
        nowhere = os.open(os.devnull, os.O_RDWR)
        if nowhere != number:
            os.dup2(nowhere, number)
            os.close(nowhere)
        os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, cast(TextIO, open(number, "w" if number else "r", closefd=False)))  # noqa: SIM115


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
