"""JSON that somebody else may have written: parsed, checked against a schema, and refused with an error that names it.

No reader puts `[]` on what a file said: it asks for a `Document`, whose fields are typed, or for plain JSON of a
known shape. Whatever is wrong (not UTF-8, cut off, nested without end, a number of thousands of digits, half a
character, a field that is missing or of another type) is a `DataError`.
"""

from __future__ import annotations

import gc
import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from paddock.errors import DataError
from paddock.files import read_regular


class Document(BaseModel):
    """The shape of a JSON object in a file. What it does not name is let pass: newer writers may say more."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, defer_build=True)


Shape = TypeVar("Shape")
Natural = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
"""A count, or a place in a file."""
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,200}$")]
"""Of a file that lies beside the document, and nowhere else."""


def parse_json(text: str | bytes, source: str, *, fix: str = "", unique: bool = False) -> Any:
    """The value that a JSON text stands for; `source` names the file (and the line) in the error. With `unique`, an
    object that says something twice is an error: readers differ in which of the two they believe."""
    try:
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text))  # strictly: json lets half of a character pass
        value = json.loads(text, object_pairs_hook=_without_repeats if unique else None)
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()  # half of a character can be parsed, and not be printed
        return value
    except RecursionError:
        why = "its values are nested too deeply"
    except UnicodeEncodeError:
        why = "a text in it has half of a character"
    except UnicodeDecodeError as error:
        why = f"byte {error.start} is not UTF-8"
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}" if error.lineno > 1 else f"character {error.colno}"
        why = f"{error.msg.lower()} at {where}"
    except _RepeatedName as error:
        why = f"it says {str(error)[:200]} twice"
    except ValueError:  # Python refuses to turn thousands of digits into a number
        why = "a number in it has too many digits"
    raise DataError(f"{source} is not valid JSON", why=why, fix=fix)


def shape_json(value: Any, shape: type[Shape], source: str, *, fix: str = "") -> Shape:
    """What was parsed, as the type that it should have."""
    try:
        found: Shape = _adapter(cast(Any, shape)).validate_python(value)
        return found
    except (ValidationError, RecursionError) as error:
        raise DataError(f"{source} does not have the expected form", why=_first_problem(error), fix=fix) from None


def parse_document(text: str | bytes, shape: type[Shape], source: str, *, fix: str = "", unique: bool = False) -> Shape:
    """A JSON text as the type that it should have."""
    return shape_json(parse_json(text, source, fix=fix, unique=unique), shape, source, fix=fix)


def read_document(path: Path, shape: type[Shape], *, fix: str = "", max_bytes: int | None = None) -> Shape:
    """A JSON file as the type that it should have; one that is longer than `max_bytes` is not read at all."""
    return parse_document(read_text(path, fix=fix, max_bytes=max_bytes), shape, str(path), fix=fix)


def read_text(path: Path, *, fix: str = "", max_bytes: int | None = None) -> bytes:
    """What a file says, if it is not longer than `max_bytes`."""
    try:
        return read_regular(path, max_bytes)
    except OSError as error:
        raise DataError(f"cannot read {path}", why=error.strerror or str(error), fix=fix) from None


@contextmanager
def uncollected() -> Iterator[None]:
    """Lets the garbage collector rest: reading makes very many objects and no cycles, and the collector would look at
    all of them again and again, to find nothing. What nobody refers to is still freed at once."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class _RepeatedName(ValueError):
    pass


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise _RepeatedName(Counter(name for name, _ in pairs).most_common(1)[0][0])
    return values


class Parser(Generic[Shape]):
    """Makes many JSON texts the same type, such as the lines of a file, each in a fraction of the time."""

    def __init__(self, shape: type[Shape], *, fix: str = "") -> None:
        self._shape, self._fix = shape, fix

    @cached_property
    def _validate(self) -> Callable[[str | bytes], Shape]:
        adapter: TypeAdapter[Shape] = _adapter(cast(Any, self._shape))
        return adapter.validate_json

    def __call__(self, text: str | bytes, source: str) -> Shape:
        try:
            return self._validate(text)
        except ValidationError as error:
            wrong = "does not have the expected form"
            if error.errors(include_url=False)[0]["type"] in ("json_invalid", "string_unicode"):
                parse_json(text, source, fix=self._fix)  # which has better words for most of it
                wrong = "is not valid JSON"
            raise DataError(f"{source} {wrong}", why=_first_problem(error), fix=self._fix) from None


@cache
def _adapter(shape: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(shape)  # type: ignore[arg-type]


def _first_problem(error: ValidationError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "its values are nested too deeply"
    detail, *others = error.errors(include_url=False, include_input=False)
    place = ".".join(map(str, detail["loc"])) or "the whole"
    more = f" (and {len(others)} more)" if others else ""
    return f"{place}: {detail['msg'][0].lower()}{detail['msg'][1:]}{more}"
