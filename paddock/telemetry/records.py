"""Records of the dllogger schema, and the three spellings in which they are found.

We write plain JSON lines. NVIDIA's dllogger puts `DLLL ` before the object. Tecorigin's tcap_dllogger puts
`TCAPPDLL ` (or `INFO `) before it, and its `data` is a string that holds a Python dict of strings. All three
are read into the same shape.

JSON has no nan and no infinity, so we write those as the strings `"nan"`, `"inf"` and `"-inf"` (null would
not say which), and read them back as numbers.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping
from typing import Any

_PREFIXES = ("DLLL ", "TCAPPDLL ", "INFO ")
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "NaN": math.nan, "Infinity": math.inf}


def encode_record(record: Mapping[str, Any]) -> bytes:
    """One line of valid JSON, with its newline."""
    plain = dict(record)
    if "data" in plain:
        plain["data"] = {name: _finite_or_word(value) for name, value in plain["data"].items()}
    return json.dumps(plain, allow_nan=False, ensure_ascii=False).encode() + b"\n"


def parse_record(line: str | bytes) -> dict[str, Any]:
    """The record of one line, in any of the three spellings; `ValueError` if the line is none."""
    text = (line.decode() if isinstance(line, bytes) else line).strip()
    foreign = False
    for prefix in _PREFIXES:
        if text.startswith(prefix):
            text, foreign = text[len(prefix) :], True
    record = json.loads(text)
    if not isinstance(record, dict) or "type" not in record:
        raise ValueError("not a record: an object with a type is expected")
    for name in ("timestamp", "elapsedtime"):  # strings in both foreign spellings
        if name in record:
            record[name] = float(record[name])
    data = record.get("data")
    if foreign and isinstance(data, str):
        data = _python_dict(data)
    if isinstance(data, dict):
        number = _number_if_any if foreign else _number_if_not_finite
        record["data"] = {name: number(value) for name, value in data.items()}
    return record


def _finite_or_word(value: Any) -> Any:
    return str(float(value)) if isinstance(value, float) and not math.isfinite(value) else value


def _number_if_not_finite(value: Any) -> Any:
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value


def _number_if_any(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return value


def _python_dict(text: str) -> Any:
    """The dict that a Python literal spells; text that spells none, such as an `INFO` line's, is kept."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text
    return value if isinstance(value, dict) else text
