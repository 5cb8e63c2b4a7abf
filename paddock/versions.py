"""What a run was made with: versions, and the command without its secrets."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Literal

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
    r"(^|[._-])(token|auth[._-]?token|bearer|password|passwd|passphrase|pwd|secret|credentials?|authorization|"
    r"(api|access|private|secret|account|encryption|wandb|swanlab|comet|neptune|hf|openai|azure|aws|auth|signing)[._-]?key(?:[._-]?id)?|secret[._-]access[._-]key)$",
    re.IGNORECASE,
)
_SPECIAL_TOKEN = re.compile(
    r"(^|[._-])(pad|unk|mask|sep|cls|eos|bos|eod|start|end|begin|stop|special|extra|additional|image|audio|video|"
    r"max|min|num|new|next|per)[._-]token$",
    re.IGNORECASE,
)
"""Tokens of a vocabulary, and numbers of them."""
_SECRET_VALUE = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{20,}|gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|"
    r"sk-(?=[\w-]{0,60}\d)[\w-]{20,}|pypi-[\w-]{40,}|xox[abprs]-[\w-]{10,}|A[KS]IA[0-9A-Z]{16}|AIza[\w-]{35}|"
    r"eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
)
_PRIVATE_KEY = "PRIVATE KEY-----"
_ASSIGNED = re.compile(r"""(?<![\w.-])([A-Za-z_][\w.-]{0,60})["']?\s{0,8}[:=]\s{0,8}["']([^"'\s]{6,200})["']""")
_NAME = r"(?<![\w.$/-])-{0,2}([A-Za-z_][\w.-]{0,60})"
_UNQUOTED = r"([^\s\"'`,;&|()\[\]{}]{6,200})"
_BARE = {
    "command": re.compile(rf"{_NAME}={_UNQUOTED}"),
    "setting": re.compile(
        rf"{_NAME}=[ \t]{{0,8}}{_UNQUOTED}|{_NAME}[ \t]{{1,8}}=[ \t]{{0,8}}{_UNQUOTED}|"
        rf"(?:^[ \t#-]{{0,80}}|[{{,]\s{{0,8}})(?<![\w.$/-])([A-Za-z_][\w.-]{{0,60}})[\"']?:[ \t]{{1,8}}{_UNQUOTED}"
        r"(?=[ \t]{0,80}(?:$|[,}#]))"
    ),
}
"""Values without quotes, as commands and as files of settings assign them."""
Form = Literal["program", "command", "setting"]
"""How a text assigns values: with quotes, as programs do; without, as commands do; or as files of settings do."""
_NO_SECRET = re.compile(
    r"[<{$!%&*].*|.*\$\{.*|(~|\.{1,2})?/[\w./-]+|[x*.…-]+|None|null|your.*|my[-_](token|password|secret|key)|example.*|change[-_]?me|placeholder|"
    r"redacted|hidden|undefined|string|boolean|integer|required|optional|unset|disabled|enabled",
    re.IGNORECASE,
)
"""What people write where a secret would stand: a variable, a file that holds it, a word."""
PIECE, OVERLAP = 4_000, 400
"""Characters of a line that are looked at together: some lines have millions."""
_IN_QUERY = re.compile(r"(?<=[?&])([\w.%~-]{1,60})=([^&#\s\"']+)")
_SIGNS_QUERY = re.compile(r"(^|[._-])(signature|sig|key|(?:aws|google)?access(?:key)?id)$", re.IGNORECASE)
"""What else gives access in an address that was signed beforehand."""
_BEARER = re.compile(r"(?<=\bbearer )\s*[\w.~+/=-]{6,}", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def redacted(command: Sequence[str]) -> list[str]:
    """A command line without what looks like a secret, by the name of its flag or variable or by its own form."""
    shown, hides_next = [], False
    for argument in command:
        name, equals, _ = argument.partition("=")
        if hides_next and not argument.startswith("--"):
            argument = HIDDEN
        elif equals and "?" not in name and _is_secret(name):  # the parameters of an address come below
            argument = f"{name}={HIDDEN}"
        hides_next = not equals and argument.startswith("-") and _is_secret(argument)
        argument = _IN_QUERY.sub(_without_value, _PASSWORD_IN_URL.sub(HIDDEN, argument))
        shown.append(_SECRET_VALUE.sub(HIDDEN, _BEARER.sub(HIDDEN, argument)))
    return shown


def _without_value(found: re.Match[str]) -> str:
    """A parameter of an address, with its value where that is no secret."""
    name = found[1]
    return f"{name}={HIDDEN}" if _is_secret(name) or _SIGNS_QUERY.search(name) else found[0]


def secrets_in(text: str, form: Form = "program") -> Iterator[tuple[int, str]]:
    """What looks like a secret in a text: the line, and what it is, without the secret itself."""
    for number, line in enumerate(text.splitlines(), start=1):
        pieces = (line[start : start + PIECE] for start in range(0, len(line), PIECE - OVERLAP))
        kind = next((found for piece in pieces if (found := _secret_in(piece, form))), None)
        if kind is not None:
            yield number, kind


def secret_in_bytes(data: bytes) -> str | None:
    """The same of what is no text: a token or a key that can be told by its own form."""
    text = data.decode("latin-1")
    return "a private key" if _PRIVATE_KEY in text else _KNOWN_FORM if _SECRET_VALUE.search(text) else None


_KNOWN_FORM = "a token of a well-known form"


def _secret_in(line: str, form: Form) -> str | None:
    if _PRIVATE_KEY in line:
        return "a private key"
    if _SECRET_VALUE.search(line):
        return _KNOWN_FORM
    if (found := _PASSWORD_IN_URL.search(line)) and _is_literal_password(found.group()):
        return "a password in an address"
    for name, value in _assigned(line, form):
        if _is_secret(name) and not _NO_SECRET.fullmatch(value) and not _is_number_of(name, value):
            return f"a value of {name}"
    return None


def _assigned(line: str, form: Form) -> Iterator[tuple[str, str]]:
    """Names, and the values that a line gives them."""
    yield from _ASSIGNED.findall(line)
    if form in _BARE:
        for groups in _BARE[form].findall(line):
            name, value = (group for group in groups if group)
            yield name, value


def _is_literal_password(user: str) -> bool:
    """Whether `user:password` of an address is one that somebody wrote out."""
    _, colon, password = user.partition(":")
    return bool(colon) and not _NO_SECRET.fullmatch(password)


def _is_number_of(name: str, value: str) -> bool:
    """Whether it is a number of tokens; a number may well be a password."""
    return name.lower().endswith("token") and value.replace("_", "").isdecimal()


def _is_secret(name: str) -> bool:
    return bool(_SECRET_NAME.search(name.lstrip("-")) and not _SPECIAL_TOKEN.search(name))
