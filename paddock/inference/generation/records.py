"""Results with a JSON object a line, added block by block: what a stopped job left is gone on with.

Until the last line is there they are in FILE.partial, and FILE.partial.json says what they are results of.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from paddock.documents import parse_document, read_document
from paddock.errors import ConfigError, DataError
from paddock.files import atomic_write, disk_errors, no_follow, sync_directory


class Records:
    """The results of a job whose `settings` these are, which give `copies` records for each input."""

    def __init__(self, path: Path, settings: dict[str, Any], copies: int) -> None:
        self._path, self._settings, self._copies = path, json.loads(json.dumps(settings)), copies
        self._partial, self._about = (path.with_name(path.name + end) for end in (".partial", ".partial.json"))

    def check(self) -> None:
        """Raise a ConfigError if there are results already, or those of another job."""
        if self._path.exists():
            raise ConfigError(f"{self._path} exists", why="results are never written over", fix="name another file")
        if self._about.exists():
            before = read_document(self._about, dict[str, Any])
            changed = sorted(name for name in before | self._settings if before.get(name) != self._settings.get(name))
            if changed:
                raise ConfigError(
                    f"{self._partial} has results with another {', '.join(changed)}",
                    why="a stopped job goes on with the same settings",
                    fix=f"give those, name another file, or remove {self._partial}.json and it",
                )

    def begin(self) -> Iterator[dict[str, Any]]:
        """The records that are there, one by one, all of complete inputs; what was written in part is taken back."""
        self.check()
        with disk_errors(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if not self._about.exists():
                self._partial.unlink(missing_ok=True)  # whose nobody knows
                with atomic_write(self._about) as stream:
                    json.dump(self._settings, stream)
            self._partial.touch()
        place, kept = 0, 0
        waiting: list[dict[str, Any]] = []
        with open(self._partial, "rb", opener=no_follow) as stream:
            for line in stream:
                record = _parse(line)
                if record is None:
                    break
                place += len(line)
                waiting.append(record)
                if len(waiting) == self._copies:
                    kept = place
                    yield from waiting
                    waiting = []
        os.truncate(self._partial, kept)

    def add(self, records: Sequence[dict[str, Any]]) -> None:
        """More records; on the disk when this returns."""
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        with disk_errors(self._path), open(self._partial, "ab", opener=no_follow) as stream:
            stream.write(text.encode(errors="surrogatepass"))
            stream.flush()
            os.fsync(stream.fileno())

    def finish(self) -> None:
        """Give the file its name: everything is there."""
        os.replace(self._partial, self._path)
        sync_directory(self._path.parent)
        self._about.unlink(missing_ok=True)


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """What a finished job wrote, one by one."""
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, start=1):
            record = _parse(line)
            if record is None:
                raise DataError(f"{path}:{number} is not a result", fix="let the job write it again")
            yield record


def _parse(line: bytes) -> dict[str, Any] | None:
    """None for a line that was not written to its end, or is something else than what was written."""
    if not line.endswith(b"\n"):
        return None
    try:  # a text may have half of a character: it is kept as it is
        found: dict[str, Any] = parse_document(line.decode(errors="surrogatepass"), dict[str, Any], "a result")
    except (UnicodeDecodeError, DataError):
        return None
    return found
