"""A headless Chromium for tests, spoken to through its debugging pipe (no port, no other package)."""

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

import pytest

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needed = pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine")


class Browser:
    """One tab. `complaints`: of all pages, on the console. `requests`: those of the open page."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back, self._rest, self._count = to, back, b"", 0
        self._session: str | None = None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._count += 1
        number = self._count
        message = {"id": number, "method": method, "params": parameters}
        os.write(
            self._to, json.dumps(message | ({"sessionId": self._session} if self._session else {})).encode() + b"\0"
        )
        while (answer := self._next()).get("id") != number:
            pass
        assert "error" not in answer, answer
        return dict(answer["result"])

    def open(
        self, path: Path, width: int = 1200, height: int = 900, scheme: str = "light", script: bool = True
    ) -> None:
        self.requests.clear()
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=path.resolve().as_uri())
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def run(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        text = {"text": "\r"} if key == "Enter" else {}
        code = {"Enter": 13, "Tab": 9, "ArrowLeft": 37, "ArrowRight": 39}.get(key, 0)
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def point(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def picture(self, path: Path, whole: bool = True) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]))

    def paper(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"]))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            read = os.read(self._back, 1 << 20)
            assert read, "Chromium has ended"
            self._rest += read
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(message["params"]["exceptionDetails"]["text"])
            case "Log.entryAdded":
                self.complaints.append(message["params"]["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
        return message


@contextmanager
def browsing(profile: Path) -> Iterator[Browser]:
    """A browser with a profile of its own, ended in the end."""
    assert PROGRAM is not None
    commands, answers = os.pipe(), os.pipe()

    def wire() -> None:
        first, second = os.dup(commands[0]), os.dup(answers[1])
        os.dup2(first, 3)
        os.dup2(second, 4)

    process = subprocess.Popen(
        [PROGRAM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
         "--remote-debugging-pipe", f"--user-data-dir={profile}"],
        preexec_fn=wire, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(commands[0])
    os.close(answers[1])
    try:
        yield Browser(commands[1], answers[0])
    finally:
        os.close(commands[1])
        os.close(answers[0])
        process.terminate()
        process.wait(20)
