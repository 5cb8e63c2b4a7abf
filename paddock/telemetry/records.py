"""Records of metrics in the dllogger schema: written as plain JSON, read in three spellings.

We write plain JSON lines. NVIDIA's dllogger puts `DLLL ` before the object. Tecorigin's tcap_dllogger puts `TCAPPDLL `
(or `INFO `) before it, and its `data` is a string that holds a Python dict of strings. All three are read into the same
shape. Nothing that a log says is ever run.

JSON has no nan and no infinity, so we write those as the strings `"nan"`, `"inf"` and `"-inf"` (null would not say
which), and read them back as numbers.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, Field, WrapValidator, with_config
from typing_extensions import TypedDict

from paddock.documents import Natural, Parser
from paddock.errors import DataError

FOREIGN = (b"DLLL ", b"TCAPPDLL ", b"INFO ")
"""What other writers put before a record."""
LONGEST_DICT = 2**16
"""Characters of a Python dict in a string: those of a record are a few hundred."""
DEEPEST = 20
"""Values in one another: in a Python dict, and in what is written."""
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "NaN": math.nan, "Infinity": math.inf}
_TENSOR = re.compile(r"tensor\(\s*([-+.\deE]+|[-+]?(?:nan|inf))\s*[,)]")
"""What torch makes of a single number, where a script logged the tensor itself."""


class _Label(list[int]):
    """No steps, but a word in their place."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


def _steps(value: Any, validate: Callable[[Any], list[int]]) -> list[int]:
    """Foreign records count in one number too, or have a word in place of a step."""
    if isinstance(value, str):
        return _Label(value)
    return validate([] if value is None else [value] if isinstance(value, int) else value)


Steps = Annotated[list[Natural], WrapValidator(_steps)]
Seconds = Annotated[float, Field(strict=False, allow_inf_nan=False)]
"""A string in both foreign spellings."""


@with_config(ConfigDict(strict=True, extra="allow"))
class Record(TypedDict):
    """A line of the file."""

    type: str
    step: NotRequired[Steps]
    """Epoch and step; nothing of a summary, nor of what has a label."""
    label: NotRequired[str]
    """The word that stood in place of a step: `PARAMETER` with what a script was started with."""
    data: NotRequired[dict[str, Any] | str]
    """Metrics by their names; in foreign files it may be a text."""
    metric: NotRequired[str]
    metadata: NotRequired[dict[str, Any]]
    timestamp: NotRequired[Seconds]
    elapsedtime: NotRequired[Seconds]
    attempt: NotRequired[Natural]


_parse = Parser(Record)


def metrics_of(record: Record) -> dict[str, Any]:
    """The metrics of a record, if it has some."""
    data = record.get("data")
    return data if isinstance(data, dict) else {}


def encode_record(record: Mapping[str, Any]) -> bytes:
    """One line of valid JSON, with its newline, whatever the values are."""
    text = json.dumps(plain(record), allow_nan=False, ensure_ascii=False)
    return text.encode("utf-8", "replace") + b"\n"  # half of a character has no place in a file


def plain(value: Any, depth: int = 0) -> Any:
    """A value as JSON has it. A tensor or an array of one number is that number; what nobody can write is its text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if depth < DEEPEST:
        if isinstance(value, Mapping):
            return {str(name): plain(one, depth + 1) for name, one in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [plain(one, depth + 1) for one in value]
        if callable(number := getattr(value, "item", None)):
            try:
                return plain(number(), DEEPEST)
            except (TypeError, ValueError, RuntimeError):  # more than one number
                return str(value)
    return str(value)


def parse_record(line: str | bytes, source: str = "this line") -> Record:
    """The record of one line, in any of the three spellings; a `DataError` if the line is none."""
    text = (line.encode(errors="replace") if isinstance(line, str) else line).strip()
    foreign = False
    for prefix in FOREIGN:
        if text.startswith(prefix):
            text, foreign = text[len(prefix) :], True
    record = _parse(text, source)
    if isinstance(step := record.get("step"), _Label):
        record["step"], record["label"] = [], step.text
    if record["type"] == "METADATA" and not ("metric" in record and "metadata" in record):
        raise DataError(f"{source} does not have the expected form", why="it describes a metric without naming it")
    data = record.get("data")
    if isinstance(data, str) and not foreign:
        raise DataError(f"{source} does not have the expected form", why="data: input should be a valid dictionary")
    if isinstance(data, str):
        data = _python_dict(data)
    if isinstance(data, dict):
        number = _number_if_any if foreign else _number_if_not_finite
        record["data"] = {name: number(value) for name, value in data.items()}
    return record


def looks_like_record(line: bytes) -> bool:
    """Whether a line was meant as a record, well or broken: other programs write into the same file."""
    return line.lstrip().startswith((b'{"', *(prefix + b"{" for prefix in FOREIGN)))


def is_foreign(line: bytes) -> bool:
    """Whether a line is in one of the spellings of others."""
    return line.lstrip().startswith(FOREIGN)


def _number_if_not_finite(value: Any) -> Any:
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value


def _number_if_any(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    tensor = _TENSOR.match(value)
    try:
        return float(tensor[1] if tensor else value)
    except ValueError:
        return value


def _python_dict(text: str) -> Any:
    """The dict that a Python literal spells; text that spells none, such as an `INFO` line's, is kept.

    Python's parser reads it and runs nothing: no name, no call, no operator has a value in a literal.
    """
    if len(text) > LONGEST_DICT:
        return text
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        value = ast.literal_eval(tree) if isinstance(tree, ast.Dict) and _depth(tree) <= DEEPEST else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text
    return {str(name): entry for name, entry in value.items()} if isinstance(value, dict) else text


def _depth(tree: ast.AST) -> int:
    """How many values are in one another, counted without going in one another."""
    deepest, level = 0, [tree]
    while level and deepest <= DEEPEST:
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        deepest += 1
    return deepest
