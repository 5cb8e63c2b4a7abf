"""Addresses of objects: `s3://bucket/folder/name`. `file:///folder/name` is a path, written as an address."""

from __future__ import annotations

import re
from dataclasses import dataclass

from paddock.errors import ConfigError, shown
from paddock.versions import redacted

SCHEMES = {
    "s3": "Amazon S3, and every store that speaks like it",
    "obs": "Huawei Cloud's object storage, which does",
    "file": "a folder, such as one that machines share",
}
COPIES = "objects"
"""The folder of the user's cache in which copies of objects are kept."""
_FORM = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}")


def is_address(text: object) -> bool:
    """Whether somebody means an address by it, of whatever kind, and not a path."""
    return isinstance(text, str) and _FORM.fullmatch(text) is not None


@dataclass(frozen=True)
class Address:
    """A place in a store: one object, or all whose names begin with it and a slash."""

    scheme: str
    bucket: str
    """Of files: empty."""
    key: str
    """Without a slash at either end; of files: the path, from its root on."""

    @staticmethod
    def parse(text: str) -> Address:
        """What somebody wrote, or an error that says what is wrong with it, without a secret that may be in it."""
        form = _FORM.fullmatch(text)
        assert form is not None, "look first whether it is an address"
        scheme, place = form.group(1).lower(), form.group(2)
        what = shown(redacted([text])[0])
        if scheme not in SCHEMES:
            choices = ", ".join(f"{name}:// ({means})" for name, means in SCHEMES.items())
            raise ConfigError(f"{what}: {scheme}:// cannot be read here", fix=f"use one of {choices}, or a path")
        bucket, _, key = ("", "", place) if scheme == "file" else place.partition("/")
        if "@" in bucket or ":" in bucket or "?" in place:
            raise ConfigError(
                f"{scheme}://…: an address says where something is, and nothing else",
                why="addresses are kept in recipes and logs, where a password would stay",
                fix="leave the rest out; credentials come from the environment (AWS_ACCESS_KEY_ID, "
                "AWS_SECRET_ACCESS_KEY) or from ~/.aws/credentials",
            )
        if scheme == "file" and not key.startswith("/"):
            raise ConfigError(f"{what}: another machine's files cannot be read", fix="write file:///folder/name")
        if scheme != "file" and not _BUCKET.fullmatch(bucket):
            raise ConfigError(f"{what} names no bucket", fix=f"write {scheme}://BUCKET/FOLDER/NAME")
        key = key.strip("/")
        if (any(part in ("", ".", "..") for part in key.split("/")) and key) or not key.isprintable():
            raise ConfigError(f"{what}: an address has no empty names, no . and no ..", fix="write it without them")
        return Address(scheme, bucket, key)

    @property
    def name(self) -> str:
        """The last part."""
        return self.key.rpartition("/")[2] or self.bucket

    def __truediv__(self, name: str) -> Address:
        return Address(self.scheme, self.bucket, f"{self.key}/{name}".strip("/"))

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.key}".rstrip("/")
