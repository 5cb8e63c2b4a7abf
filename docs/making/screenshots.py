"""The pictures of docs/pictures/browser: a report and pages of the site in Chromium, wide and as on a phone, in light
and in dark.

    make docs
    paddock report RUN … --output report.html
    python docs/making/screenshots.py report.html

needs chromium, and Pillow for small files. A page that is wider than its window is an error.
"""

from __future__ import annotations

import base64
import functools
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "docs"
PICTURES = ROOT / "docs" / "pictures" / "browser"
SIZES = {"wide": (1280, 900), "phone": (390, 844)}
SCHEMES = ("light", "dark")
PAGES = {"home": "", "reference": "reference/recipe/#model-of-gpt2"}
"""Of the site."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
COLORS = 128
FORGET = "try { localStorage.clear() } catch {}"
"""The site remembers a scheme."""
SETTLED = "new Promise(next => setTimeout(next, 1000))"
"""Headings slide and fade when a page is opened."""
WIDTH = "Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)"


class Browser:
    """Chromium without windows. It is spoken to over two pipes, in JSON, as DevTools does."""

    def __init__(self, program: str, profile: str) -> None:
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--hide-scrollbars", "--disable-gpu", "--remote-debugging-pipe"]
        pipes = f'exec 3<&{to_browser} 4>&{from_browser}; exec "$@"'
        command = ["sh", "-c", pipes, "sh", program, *flags, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(  # noqa: S603  a browser that is installed here
            command, pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_browser)
        os.close(from_browser)
        self._number, self._buffer, self._session = 0, b"", None
        targets = self.ask("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        self.ask("Page.enable")
        self.ask("Page.addScriptToEvaluateOnNewDocument", source=FORGET)

    def close(self) -> None:
        os.close(self._write)
        os.close(self._read)
        self._process.terminate()
        self._process.wait()

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command, and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        answer = next(told for told in self._messages() if told.get("id") == self._number)
        if "error" in answer:
            raise SystemExit(f"{method}: {answer['error']['message']}")
        found: dict[str, Any] = answer["result"]
        return found

    def open(self, address: str, size: tuple[int, int], scheme: str) -> None:
        """Show a page, in a window of that size."""
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.ask("Emulation.setDeviceMetricsOverride", **metrics)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        for place in ("about:blank", address):  # the page before goes first: it would note a change of the scheme
            self.ask("Page.navigate", url=place)
            next(told for told in self._messages() if told.get("method") == "Page.loadEventFired")

    def value(self, expression: str) -> Any:
        """What a script on the page comes to; a promise is waited for."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        return found["result"].get("value")

    def picture(self) -> bytes:
        """What the window shows, as PNG."""
        return base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"])

    def _messages(self) -> Iterator[dict[str, Any]]:
        while True:
            while b"\0" not in self._buffer:
                piece = os.read(self._read, 1 << 20)
                if not piece:
                    raise SystemExit("the browser has ended")
                self._buffer += piece
            message, _, self._buffer = self._buffer.partition(b"\0")
            yield json.loads(message)


@dataclass(frozen=True)
class Page:
    name: str
    address: str


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The files of a folder, for this machine, while the block lasts."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()


@contextmanager
def browser() -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        raise SystemExit(f"none of {', '.join(BROWSERS)} is installed")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        opened = Browser(program, profile)
        try:
            yield opened
        finally:
            opened.close()


def compact(png: bytes) -> bytes:
    """The same with few colours: a page has not many."""
    from PIL import Image

    out = io.BytesIO()
    image = Image.open(io.BytesIO(png)).convert("RGB")
    image.quantize(COLORS, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


def show(opened: Browser, pages: list[Page], pictures: Path) -> list[str]:
    """Take every picture; returns the pages that are wider than their window."""
    wider = []
    for page in pages:
        for size, (width, height) in SIZES.items():
            for scheme in SCHEMES:
                opened.open(page.address, (width, height), scheme)
                opened.value(SETTLED)
                name = f"{page.name}-{size}-{scheme}"
                (pictures / f"{name}.png").write_bytes(compact(opened.picture()))
                if (found := opened.value(WIDTH)) > width:
                    wider.append(f"{name}: {found} of {width} pixels")
    return wider


def main() -> None:
    report = Path(sys.argv[1]).resolve()
    pictures = Path(sys.argv[2]) if len(sys.argv) > 2 else PICTURES
    pictures.mkdir(parents=True, exist_ok=True)
    with served(SITE) as site, browser() as opened:
        pages = [Page("report", report.as_uri()), *(Page(name, site + path) for name, path in PAGES.items())]
        wider = show(opened, pages, pictures)
    if wider:
        raise SystemExit("wider than the window: " + "; ".join(wider))


if __name__ == "__main__":
    main()
