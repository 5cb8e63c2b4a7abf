"""Columns of text in Parquet tables, as JSON lines: a row is a line, with the keys that were asked for.

So whatever reads JSON lines reads tables. pyarrow unpacks a page at a time: memory does not grow with the table, nor
with its row groups. Those before the first row that is wanted are not read at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from paddock.errors import DataError, MachineError

SUFFIX = ".parquet"
MARK = b"PAR1"
"""How a table begins, and how it ends."""
PAGES = 1 << 16
"""Bytes of the file that are read at a time."""


def check_table(path: str, keys: Sequence[str], flag: str) -> None:
    """Raise now, before any work, if a table cannot be read, or has no such columns of text. `flag` names others."""
    table = _open(path)
    for key in keys:
        found = table.schema_arrow.get_all_field_indices(key)
        if len(found) != 1:
            have = ", ".join(table.schema_arrow.names[:10]) or "none"
            raise DataError(
                f'{path} has {"several columns" if found else "no column"} "{key}"',
                why=f"its columns are {have}",
                fix="give them names of their own" if found else f"name the one with the text: {flag} NAME",
            )
        kind = table.schema_arrow.field(found[0]).type
        if not _is_text(kind):
            fix = f"name another: {flag} NAME; or write the table with a column of strings"
            raise DataError(f'column "{key}" of {path} is {kind}, not text', fix=fix)


def read_table(path: str, keys: Sequence[str], first_row: int, size: int) -> Iterator[tuple[bytes, float]]:
    """JSON lines of about `size` bytes together, of all rows from a first one on; and the share of all rows that has
    been read with them. ValueError or OSError where the table is damaged."""
    table = _open(path)
    rows = table.metadata.num_rows
    if rows != (held := sum(table.metadata.row_group(number).num_rows for number in range(table.num_row_groups))):
        raise ValueError(f"it says that it has {rows} rows, and its groups have {held}")
    done, lines, length = first_row, list[bytes](), 0
    for batch in _batches(table, keys, first_row, size):
        for line in _lines(batch, keys):
            lines.append(line)
            length += len(line)
            done += 1
            if length >= size:
                yield b"".join(lines), done / rows
                lines, length = [], 0
    if lines:
        yield b"".join(lines), done / rows


def _batches(table: Any, keys: Sequence[str], first_row: int, size: int) -> Iterator[Any]:
    """Rows from a first one on, some at a time: about `size` bytes of them, by what the file says of their mean."""
    for number in range(table.num_row_groups):
        group = table.metadata.row_group(number)
        if first_row >= group.num_rows:
            first_row -= group.num_rows
            continue
        mean = group.total_byte_size / max(group.num_rows, 1)
        count = max(1, min(int(size / max(mean, 1.0)), size >> 8))
        for batch in table.iter_batches(count, row_groups=[number], columns=list(keys), use_threads=False):
            skipped = min(first_row, batch.num_rows)
            first_row -= skipped
            if skipped < batch.num_rows:
                yield batch.slice(skipped)


def _lines(batch: Any, keys: Sequence[str]) -> Iterator[bytes]:
    columns = [_texts(batch.column(key)) for key in keys]
    for texts in zip(*columns, strict=True):
        line = json.dumps(dict(zip(keys, texts, strict=True)), ensure_ascii=False)
        # Bytes that are no UTF-8 are halves of characters here, which JSON can spell and its reader refuses.
        yield line.encode(errors="backslashreplace") + b"\n"


def _texts(column: Any) -> Iterator[str | None]:
    arrow = _package("pyarrow")
    if arrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    for value in column.cast(arrow.large_binary()).to_pylist():
        yield None if value is None else value.decode(errors="surrogateescape")


def _is_text(kind: Any) -> bool:
    types = _package("pyarrow").types
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _open(path: str) -> Any:
    parquet = _package("pyarrow.parquet")
    if parquet is None:
        raise MachineError(
            f"{path} needs the package pyarrow",
            why="it is a Parquet table, which nothing else here can read",
            fix="pip install 'paddock[parquet]', or write its column of texts as JSON lines",
        )
    try:
        return parquet.ParquetFile(path, buffer_size=PAGES, pre_buffer=False)
    except (ValueError, OSError, _package("pyarrow").ArrowException) as error:
        raise DataError(
            f"{path} cannot be read as a Parquet table", why=_first_line(error), fix="copy the file again"
        ) from None


def table_errors() -> tuple[type[Exception], ...]:
    """What a damaged table raises."""
    arrow = _package("pyarrow")
    return () if arrow is None else (arrow.ArrowException,)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        return None
