"""What a run was made with: versions, and the command without its secrets."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from paddock import __version__


def versions() -> dict[str, Any]:
    """Of Paddock, Python, the platform and the libraries that decide what is computed."""
    from importlib import metadata  # and with it what reads mails: no help page needs that

    names = ("torch", "numpy", "tokenizers", "safetensors", "pydantic")
    return {
        "paddock": __version__,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        **{name: metadata.version(name) for name in names},
    }


HIDDEN = "[redacted]"
_SECRET_NAME = re.compile(
    r"(^|[._-])(token|auth[._-]?token|password|passwd|passphrase|pwd|secret|credentials?|authorization|"
    r"(api|access|private|secret|account|encryption)[._-]?key(?:[._-]?id)?|secret[._-]access[._-]key)$",
    re.IGNORECASE,
)
_SPECIAL_TOKEN = re.compile(
    r"(^|[._-])(pad|unk|mask|sep|cls|eos|bos|eod|start|end|begin|special)[._-]token$", re.IGNORECASE
)
_SECRET_VALUE = re.compile(
    r"hf_[A-Za-z0-9]{20,}|gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|sk-[\w-]{20,}|"
    r"xox[abprs]-[\w-]{10,}|A[KS]IA[0-9A-Z]{16}|AIza[\w-]{35}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
)
_ASSIGNED = re.compile(r"""(?<![\w.-])([A-Za-z_][\w.-]{0,60})["']?\s{0,8}[:=]\s{0,8}["']([^"'\s]{6,200})["']""")
_NO_SECRET = re.compile(r"[<{$].*|[x*.…]+|None|null|your.*|example.*|changeme", re.IGNORECASE)
"""What people write where a secret would stand."""
PIECE, OVERLAP = 4_000, 400
"""Characters of a line that are looked at together: some lines have millions."""
_PASSWORD_IN_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def redacted(command: Sequence[str]) -> list[str]:
    """A command line without what looks like a secret, by the name of its flag or variable or by its own form."""
    shown, hides_next = [], False
    for argument in command:
        name, equals, _ = argument.partition("=")
        if hides_next and not argument.startswith("--"):
            argument = HIDDEN
        elif equals and _is_secret(name):
            argument = f"{name}={HIDDEN}"
        hides_next = not equals and argument.startswith("-") and _is_secret(argument)
        shown.append(_SECRET_VALUE.sub(HIDDEN, _PASSWORD_IN_URL.sub(HIDDEN, argument)))
    return shown


def secrets_in(text: str) -> Iterator[tuple[int, str]]:
    """What looks like a secret in a text: the line, and what it is, without the secret itself."""
    for number, line in enumerate(text.splitlines(), start=1):
        pieces = (line[start : start + PIECE] for start in range(0, len(line), PIECE - OVERLAP))
        kind = next((found for found in map(_secret_in, pieces) if found), None)
        if kind is not None:
            yield number, kind


def _secret_in(line: str) -> str | None:
    if "PRIVATE KEY-----" in line:
        return "a private key"
    if _SECRET_VALUE.search(line):
        return "a token of a well-known form"
    if (found := _PASSWORD_IN_URL.search(line)) and ":" in found.group():
        return "a password in an address"
    for name, value in _ASSIGNED.findall(line):
        if _is_secret(name) and not _NO_SECRET.fullmatch(value):
            return f"a value of {name}"
    return None


def _is_secret(name: str) -> bool:
    return bool(_SECRET_NAME.search(name.lstrip("-")) and not _SPECIAL_TOKEN.search(name))
