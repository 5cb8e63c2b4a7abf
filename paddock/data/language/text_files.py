"""Text that a corpus is made of: the files that `data.path` names.

A digest of their content tells whether what was made of them before is still true.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from paddock.data.config import TextDocument, TokensConfig
from paddock.data.preprocess.chunks import Position, read_chunks
from paddock.data.preprocess.inputs import Input, check_readable, find_inputs, stat_input
from paddock.data.preprocess.parsing import BadLine, parse_chunk
from paddock.errors import ConfigError, DataError, bad_value
from paddock.files import open_regular
from paddock.objects.fetch import local_path
from paddock.telemetry.screen.terminal import byte_progress_bar

CHUNK = 1 << 20
"""Bytes that are read at a time."""
FLAG = "--data.path"


@dataclass(frozen=True)
class TextFiles:
    """Files of plain text, JSON lines and tables, that are there and can be read."""

    files: tuple[Input, ...]
    document: TextDocument
    json_key: str

    @staticmethod
    def find(data: TokensConfig) -> TextFiles:
        """The files that a recipe names."""
        paths = [str(local_path(str(path))) for path in data.path or ()]
        for path in paths:
            if not os.path.lexists(path) and os.path.isfile(f"{path}.idx"):
                why = f"{path}.idx is the index of a corpus that is tokens already"
                raise bad_value("data.source", "text", why, "set --data.source indexed")
        files = tuple(find_inputs(paths, FLAG))
        for file in files:
            if file.is_stream:
                why = "it is a stream, which can be read only once"
                raise ConfigError(f"{FLAG} {file.path} is no file", why=why, fix="write it to a file first")
            if not file.size:
                raise DataError(f"{file.name} is empty", fix=f"leave it out of {FLAG}")
            check_readable(file, (data.json_key,), "--data.json-key")
        ignored = {"document": any(file.is_text for file in files), "json_key": not all(file.is_text for file in files)}
        for name, used in ignored.items():
            if not used and getattr(data, name) != type(data).model_fields[name].default:
                kind = "plain text (.txt)" if name == "document" else "JSON lines or a table: all are plain text (.txt)"
                raise bad_value(f"data.{name}", getattr(data, name), f"no file of {FLAG} is {kind}", "leave it out")
        return TextFiles(files, data.document, data.json_key)

    @cached_property
    def digest(self) -> str:
        found = hashlib.sha256(repr((self.document, self.json_key, [file.is_text for file in self.files])).encode())
        for file in self.files:
            with open_regular(file.path) as stream:
                found.update(hashlib.file_digest(stream, "sha256").digest())  # type: ignore[arg-type]
        return found.hexdigest()

    @cached_property
    def num_documents(self) -> int:
        """Found by reading all of it once: what cannot be used is an error that names file and line, before anything is
        made of the rest."""
        counts = [0] * len(self.files)
        for number, texts in self._read("checking"):
            counts[number] += sum(bool(text) and not text.isspace() for text in texts)
        for file, count in zip(self.files, counts, strict=True):
            if not count:
                raise DataError(f"{file.name} holds no text", fix=f"leave it out of {FLAG}")
        return sum(counts)

    def describe(self) -> str:
        """What they are, for people."""
        more = f" and {len(self.files) - 1} more" if len(self.files) > 1 else ""
        is_cut = self.document == "line" and any(file.is_text for file in self.files)
        cut = ", a line each (--data.document file: a file each)" if is_cut else ""
        documents = "1 document" if self.num_documents == 1 else f"{self.num_documents:,} documents"
        return f"{documents} of {self.files[0].name}{more}{cut}"

    def texts(self) -> Iterator[str]:
        for _, texts in self._read("reading"):
            yield from texts

    def inputs(self, folder: Path) -> tuple[str, ...]:
        return tuple(file.path for file in self.files)

    def check_unchanged(self) -> None:
        """An error, if somebody has written to a file since it was found."""
        for file in self.files:
            if stat_input(file.path, FLAG) != file:
                raise DataError(f"{file.name} changed while it was read", fix="start again when nobody writes to it")

    def _read(self, title: str) -> Iterator[tuple[int, list[str]]]:
        """The number of each file and some of its texts, in turn."""
        begins = list(accumulate((file.size or 0 for file in self.files), initial=0))
        with byte_progress_bar(title, begins[-1]) as advance:
            done = 0
            for chunk in read_chunks(self.files, Position(), CHUNK, document=self.document, keys=(self.json_key,)):
                number = chunk.begin.input
                found = parse_chunk(chunk, [self.json_key], refuses_control=True)
                if found.bad:
                    raise _refusal(self.files[number], found.bad[0])
                yield number, found.texts[0]
                reached = begins[number] + chunk.consumed
                advance(reached - done)
                done = reached


def _refusal(file: Input, bad: BadLine) -> DataError:
    unit, kind = file.unit, file.kind
    renames = {"plain text": "it is JSON lines, name it .jsonl", "JSON lines": "it is plain text, name it .txt"}
    rename = f"; or, if {renames[kind]}" if kind in renames else ""
    return DataError(
        f"{file.name}, {unit} {bad.line}: {bad.reason}",
        why=f"by its name the file is {kind}",
        fix=bad.other_key("--data.json-key")
        + f"correct the {unit}{rename}; or make a corpus of the other {unit}s: paddock preprocess --on-error skip, "
        "which lists those that it leaves out",
    )
