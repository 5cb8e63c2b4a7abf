"""A store of objects for tests, that speaks as much of S3 as reading and writing needs, and fails when it is told to.

It listens on loopback, at a port that the kernel picks, and keeps everything in memory. It knows keys, but checks no
signatures: moto, which was written by others, stands in where it is installed.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

KEY, SECRET = "tester", "a secret of tests"
Fault = Literal["error", "reset", "truncate", "garble"]
"""Of an answer: 503, a connection that is cut before it, a body that ends early, one with a wrong byte."""


@dataclass
class StoredObject:
    """An object, and what is said of it."""

    content: bytes
    etag: str
    modified: datetime = field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0))


class ObjectServer(ThreadingHTTPServer):
    """The store. `requests` is what was asked so far, as (method, key); `fault` decides what becomes of an answer."""

    daemon_threads = True

    def __init__(self, *buckets: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.buckets: dict[str, dict[str, StoredObject]] = {name: {} for name in buckets}
        self.parts: dict[str, dict[int, bytes]] = {}
        self.requests: list[tuple[str, str]] = []
        self.fault: Callable[[int, str, str], Fault | None] = lambda number, method, key: None
        self.encrypts = False
        """Whether ETags are no sums, as in buckets that are encrypted with keys of their owner."""
        self.lock = threading.Lock()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def environment(self) -> dict[str, str]:
        """What tells Paddock to use this store."""
        return {"AWS_ENDPOINT_URL": self.endpoint, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}

    def put(self, bucket: str, key: str, content: bytes, etag: str | None = None) -> str:
        """Store an object; returns its ETag."""
        etag = etag or hashlib.md5(content, usedforsecurity=False).hexdigest()
        if self.encrypts:
            etag = hashlib.md5(etag.encode(), usedforsecurity=False).hexdigest()
        with self.lock:
            self.buckets[bucket][key] = StoredObject(content, f'"{etag}"')
        return f'"{etag}"'


@contextmanager
def object_server(*buckets: str) -> Iterator[ObjectServer]:
    """A store with these buckets, for a while."""
    with ObjectServer(*buckets) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: ObjectServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        self._serve()

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def _serve(self) -> None:
        address = urlsplit(self.path)
        bucket, _, key = unquote(address.path).lstrip("/").partition("/")
        query = {name: values[0] for name, values in parse_qs(address.query, keep_blank_values=True).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        server = self.server
        with server.lock:
            server.requests.append((self.command, key))
            number = len(server.requests)
        self._fault = server.fault(number, self.command, key)
        if self._fault == "error":
            self._fault = None
            return self._answer(503, _error("SlowDown", "the store has too much to do"))
        if f"Credential={KEY}/" not in self.headers.get("Authorization", ""):
            return self._answer(403, _error("InvalidAccessKeyId", "the key is not known here"))
        if bucket not in server.buckets:
            return self._answer(404, _error("NoSuchBucket", "there is no such bucket"))
        if "uploads" in query or "uploadId" in query:
            return self._upload_parts(bucket, key, query, body)
        if "delete" in query:
            keys = re.findall(r"<Key>(.*?)</Key>", body.decode())
            with server.lock:
                for one in keys:
                    server.buckets[bucket].pop(unescape(one), None)
            gone = "".join(f"<Deleted><Key>{one}</Key></Deleted>" for one in keys)
            return self._answer(200, f"<DeleteResult>{gone}</DeleteResult>".encode())
        if self.command == "PUT":
            return self._answer(200, headers={"ETag": server.put(bucket, key, body)})
        if self.command == "DELETE":
            with server.lock:
                server.buckets[bucket].pop(key, None)
            return self._answer(204)
        return self._send_object(server.buckets[bucket].get(key)) if key else self._list(bucket, query)

    def _send_object(self, found: StoredObject | None) -> None:
        if found is None:
            return self._answer(404, _error("NoSuchKey", "there is no such object"))
        if self.headers.get("If-Match", found.etag) != found.etag:
            return self._answer(412, _error("PreconditionFailed", "the object is another one"))
        headers = {"ETag": found.etag, "Last-Modified": format_datetime(found.modified, usegmt=True)}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked is None:
            return self._answer(200, found.content, headers)
        start, end = int(asked[1]), min(int(asked[2] or 2**62), len(found.content) - 1)
        headers["Content-Range"] = f"bytes {start}-{end}/{len(found.content)}"
        return self._answer(206, found.content[start : end + 1], headers)

    def _list(self, bucket: str, query: dict[str, str]) -> None:
        """A page of two objects and folders at most, so that whoever reads asks for the next one."""
        prefix, delimiter, after = (query.get(name, "") for name in ("prefix", "delimiter", "continuation-token"))
        with self.server.lock:
            found = {key: one for key, one in sorted(self.server.buckets[bucket].items()) if key.startswith(prefix)}
        entries: dict[str, str] = {}
        for key, one in found.items():
            folder = (
                key[: key.index(delimiter, len(prefix)) + 1] if delimiter and delimiter in key[len(prefix) :] else ""
            )
            if folder:
                entries[folder] = f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            else:
                entries[key] = (
                    f"<Contents><Key>{escape(key)}</Key><LastModified>{one.modified:%Y-%m-%dT%H:%M:%S.000Z}</LastModified>"
                    f"<ETag>{escape(one.etag)}</ETag><Size>{len(one.content)}</Size></Contents>"
                )
        names = [name for name in sorted(entries) if name > after]
        page = names[:2]
        more = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if len(names) > len(page) else ""
        inside = "".join(entries[name] for name in page) + more
        cut = str(bool(more)).lower()
        listing = f"<ListBucketResult><Name>{bucket}</Name><IsTruncated>{cut}</IsTruncated>{inside}</ListBucketResult>"
        self._answer(200, listing.encode(), {"Content-Type": "application/xml"})

    def _upload_parts(self, bucket: str, key: str, query: dict[str, str], body: bytes) -> None:
        server = self.server
        if "uploads" in query:
            with server.lock:
                upload = f"upload{len(server.parts)}"
                server.parts[upload] = {}
            text = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
            return self._answer(200, text.encode())
        upload = query["uploadId"]
        if self.command == "PUT":
            server.parts[upload][int(query["partNumber"])] = body
            return self._answer(200, headers={"ETag": f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'})
        parts = server.parts.pop(upload, {})
        if self.command == "DELETE":
            return self._answer(204)
        pieces = [parts[number] for number in sorted(parts)]
        sums = b"".join(hashlib.md5(piece, usedforsecurity=False).digest() for piece in pieces)
        etag = f"{hashlib.md5(sums, usedforsecurity=False).hexdigest()}-{len(pieces)}"
        etag = server.put(bucket, key, b"".join(pieces), etag)
        text = f"<CompleteMultipartUploadResult><ETag>{escape(etag)}</ETag></CompleteMultipartUploadResult>"
        return self._answer(200, text.encode())

    def _answer(self, status: int, content: bytes = b"", headers: dict[str, str] | None = None) -> None:
        if self._fault == "reset":
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if self._fault == "garble" and content:
            content = bytes([content[0] ^ 1]) + content[1:]
        if self._fault == "truncate":
            content, self.close_connection = content[: len(content) // 2], True
        self.wfile.write(content)


def _error(code: str, message: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
