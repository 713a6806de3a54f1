"""Chromium without a window, driven by chromedriver over HTTP: for tests of pages that weft writes, and for figures
about them. A missing one skips the tests that ask for it, as oracles do."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

PATIENCE = 60  # seconds that a call may take on a busy machine
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars"
).split()
MISSING = "Chromium with chromedriver is not installed: `apt-get install chromium chromium-driver`"


def missing() -> str | None:
    """Why there is no browser; None if there is one. Where all oracles are required, there has to be one."""
    required = os.environ.get("WEFT_REQUIRE_ORACLES") == "1"
    return None if required or (shutil.which("chromedriver") and _chromium()) else MISSING


def _chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """One session of a browser; what it is asked goes by the WebDriver protocol."""

    def __init__(self, address: str, session: str) -> None:
        self._address, self._session = address, session

    def call(self, path: str, body: Any = None) -> Any:
        return _call(f"{self._address}/session/{self._session}/{path}", body)

    def open(self, page: Path) -> None:
        self.call("url", {"url": page.resolve().as_uri()})

    def run(self, script: str, *args: Any) -> Any:
        """The result of a function's body in the page."""
        return self.call("execute/sync", {"script": script, "args": list(args)})

    def until(self, script: str, *args: Any) -> Any:
        """The first result of a function's body that is true, asked at each frame that is drawn."""
        waiting = f"""
            const done = arguments[arguments.length - 1], given = [...arguments].slice(0, -1);
            const ask = function () {{ {script} }};
            const again = () => {{
                const found = ask.apply(null, given);
                found ? done(found) : requestAnimationFrame(again);
            }};
            again();"""
        return self.call("execute/async", {"script": waiting, "args": list(args)})

    def size(self, width: int, height: int) -> None:
        """What the page sees as its window, whatever the least size of a window is."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.command("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, scheme: str) -> None:
        """Makes the page believe that the user prefers dark or light pages."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.command("Emulation.setEmulatedMedia", {"features": features})

    def command(self, name: str, params: dict[str, Any]) -> Any:
        """A command of Chromium's own protocol."""
        return self.call("goog/cdp/execute", {"cmd": name, "params": params})

    def press(self, *keys: str) -> None:
        """Keys, one after the other, as from a keyboard."""
        strokes = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.call("actions", {"actions": [{"type": "key", "id": "keyboard", "actions": strokes}]})

    def click(self, selector: str) -> None:
        """A click of the pointer in the middle of the first element of a selector."""
        place = self.run(
            "const e = document.querySelector(arguments[0]); e.scrollIntoView?.({block: 'nearest'});"
            "const b = e.getBoundingClientRect(); return [b.left + b.width / 2, b.top + b.height / 2]",
            selector,
        )
        self.click_at(*place)

    def click_at(self, x: float, y: float) -> None:
        move = {"type": "pointerMove", "duration": 0, "x": round(x), "y": round(y)}
        press = [{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        self.call("actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": [move, *press]}]})

    def screenshot(self) -> bytes:
        return base64.b64decode(self.call("screenshot"))

    def console(self) -> list[str]:
        """What the page has complained about since the last time."""
        return [entry["message"] for entry in self.call("se/log", {"type": "browser"})]


def _call(address: str, body: Any = None, method: str | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = Request(address, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)["value"]
    except OSError as error:
        told = getattr(error, "read", bytes)()
        raise RuntimeError(f"{address}: {error} {told.decode()[:500]}") from None


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser with a profile of its own, which is gone with it."""
    with tempfile.TemporaryDirectory() as profile, _driver() as address:
        options = {"args": [*FLAGS, f"--user-data-dir={profile}"]}
        if binary := _chromium():
            options["binary"] = binary
        wanted = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
            "timeouts": {"script": 1000 * PATIENCE // 2},
        }
        made = _call(f"{address}/session", {"capabilities": {"alwaysMatch": wanted}})
        try:
            yield Browser(address, made["sessionId"])
        finally:
            _call(f"{address}/session/{made['sessionId']}", method="DELETE")


@contextmanager
def _driver() -> Iterator[str]:
    driver = shutil.which("chromedriver")
    assert driver is not None, MISSING
    process = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"started successfully on port (\d+)", line):
                break
        else:
            raise RuntimeError("chromedriver did not start")
        yield f"http://127.0.0.1:{found[1]}"
    finally:
        process.terminate()
        process.wait(PATIENCE)
        process.stdout.close()
