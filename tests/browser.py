"""Chromium, driven by its DevTools protocol over a pipe: screens of any width, both themes."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((path for path in map(shutil.which, BROWSERS) if path), None)
QUIET = (
    *("--headless", "--disable-gpu", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-default-apps", "--disable-extensions", "--enable-logging=stderr"),
    *(("--no-sandbox",) if os.geteuid() == 0 else ()),
)
PIPE = 'exec "$@" 3<&{} 4>&{}'  # where the browser reads requests, and writes answers


class Tab:
    """A page in a browser."""

    def __init__(self, requests: int, answers: int) -> None:
        self._requests, self._answers = requests, answers
        self._left, self._number, self._session = b"", 0, ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.call("Page.enable")

    def call(self, method: str, **params: Any) -> Any:
        """Call a method of the protocol; return its result."""
        self._number += 1
        request = {"id": self._number, "method": method, "params": params}
        session = {"sessionId": self._session} if self._session else {}
        os.write(self._requests, json.dumps(request | session).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def wait(self, event: str) -> None:
        """Wait for an event."""
        while self._next().get("method") != event:
            pass

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            more = os.read(self._answers, 1 << 20)
            assert more, "the browser has ended"
            self._left += more
        message, self._left = self._left.split(b"\0", 1)
        return dict(json.loads(message))

    def show(self, page: Path, width: int, theme: str, media: str = "screen") -> None:
        """Show a page so many pixels wide, `dark` or `light`, on a screen or in print."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)
        self.call("Page.navigate", url=page.as_uri())
        self.wait("Page.loadEventFired")

    def evaluate(self, program: str) -> Any:
        """Return the value of a program in the page."""
        result = self.call("Runtime.evaluate", expression=program, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def picture(self) -> bytes:
        """Return the whole page as a PNG file."""
        picture = self.call("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        return base64.b64decode(picture["data"])

    def printed(self) -> bytes:
        """Return the page as a PDF file."""
        printed = self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        return base64.b64decode(printed["data"])


@contextmanager
def open_tab(profile: Path) -> Iterator[Tab]:
    """Start a browser with a profile of its own, and end it."""
    assert BROWSER is not None
    browser_reads, requests = os.pipe()
    answers, browser_writes = os.pipe()
    command = ["bash", "-c", PIPE.format(browser_reads, browser_writes), "bash", BROWSER, *QUIET]
    process = subprocess.Popen(
        [*command, f"--user-data-dir={profile}", "--remote-debugging-pipe"],
        pass_fds=(browser_reads, browser_writes),
        stderr=subprocess.DEVNULL,
    )
    os.close(browser_reads)
    os.close(browser_writes)
    try:
        yield Tab(requests, answers)
    finally:
        process.terminate()
        process.wait()
        os.close(requests)
        os.close(answers)
