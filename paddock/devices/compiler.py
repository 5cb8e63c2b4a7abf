"""The C++ compiler that torch's own calls on a CPU: the one that CXX names, else the platform's."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class HostCompiler:
    """What is named, and what is found of it."""

    command: str
    """As CXX has it, or the platform's own."""
    is_named: bool
    """Whether CXX says so."""
    executable: str | None
    """The program that its first word stands for; None where there is none."""
    is_plain: bool
    """Whether the whole is the name or the path of that program: nothing else is ever run to ask for its version."""

    @property
    def problem(self) -> str:
        """What to say where nothing is found."""
        if self.is_named:
            return f"CXX is {self.command[:80]!r}, which is no program on this machine"
        return f"{self.command} is not on the PATH"

    @property
    def remedy(self) -> str:
        return "name one in CXX that is there, or unset it" if self.is_named else "install one"


def host_compiler() -> HostCompiler:
    """What torch's compiler would call now."""
    named = os.environ.get("CXX")
    command = named or ("clang++" if sys.platform == "darwin" else "g++")
    plain = shutil.which(command)
    return HostCompiler(command, bool(named), plain or _first_word(command), plain is not None)


def _first_word(command: str) -> str | None:
    """The program of a command with arguments; None of a text that is no command."""
    try:
        words = shlex.split(command)
    except ValueError:  # a quote without its other half
        return None
    return shutil.which(words[0]) if words else None
