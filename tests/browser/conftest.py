"""A browser without a window, which reaches nobody, and what it says of a page.

ChromeDriver is asked by HTTP, as W3C's WebDriver has it: a client of that in Python would bring
nine packages for five requests.
"""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.probe_stack import eventually
from tests.support.programs import program

#: Root may run it only without its sandbox; no service of its maker is asked for anything.
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--window-size=1280,1024",
)
_SECONDS = 120


class Browser:
    """A browser, and what became of the page that it has open.

    Args:
        driver: address of its driver.
        chromium: the program.
        profile: an empty directory.
    """

    def __init__(self, driver: str, chromium: Path, profile: Path) -> None:
        options = {"binary": str(chromium), "args": [*_FLAGS, f"--user-data-dir={profile}"]}
        wanted = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        self._session = f"{driver}/session"
        made = self._ask("", {"capabilities": {"alwaysMatch": wanted}})
        self._session += f"/{made['sessionId']}"

    def open(self, page: Path) -> None:
        """Load a file; what was said of the page before is forgotten."""
        self._ask("/url", {"url": "about:blank"})
        self.complaints()
        self.requests()
        self._ask("/url", {"url": page.as_uri()})

    def run(self, script: str, *arguments: Any) -> Any:
        """The value of a function's body in the page; the page's own policy does not bind it."""
        return self._ask("/execute/sync", {"script": script, "args": arguments})

    def click(self, selector: str) -> None:
        """Click where a person would, on what a CSS selector finds."""
        found = self._ask("/element", {"using": "css selector", "value": selector})
        (element,) = found.values()
        self._ask(f"/element/{element}/click", {})

    def complaints(self) -> list[str]:
        """What the console has got since the last look: errors, refusals and warnings."""
        return [each["message"] for each in self._ask("/se/log", {"type": "browser"})]

    def requests(self) -> list[str]:
        """The addresses that the page has asked for since the last look, its own first.

        What its policy has refused was not asked for.
        """
        said = self._ask("/se/log", {"type": "performance"})
        asked: dict[str, str] = {}
        for event in (json.loads(each["message"])["message"] for each in said):
            about = event["params"]
            if event["method"] == "Network.requestWillBeSent":
                asked[about["requestId"]] = about["request"]["url"]
            if event["method"] == "Network.loadingFailed" and about.get("blockedReason") == "csp":
                asked.pop(about["requestId"], None)
        return list(asked.values())

    def close(self) -> None:
        """End the browser."""
        self._ask("", None, "DELETE")

    def _ask(self, path: str, body: object, method: str = "POST") -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 -- http, to our own driver
            self._session + path, data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with _OPENER.open(request, timeout=_SECONDS) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.read().decode()}") from None


#: Whatever proxy the environment names: the driver is on this machine.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Debian's Chromium."""
    chromium = program("chromium", "chromium")
    driver = program("chromedriver", "chromium-driver")
    base = tmp_path_factory.mktemp("chromium")
    log = base / "driver.log"
    with log.open("w") as said, subprocess.Popen([driver, "--port=0"], stdout=said) as process:
        try:
            opened = Browser(_address(process, log), chromium, base / "profile")
            yield opened
            opened.close()
        finally:
            process.terminate()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Where a driver listens; it tells the port that it was given."""
    words = "was started successfully on port "

    def told() -> str:
        assert process.poll() is None, log.read_text()
        return log.read_text().partition(words)[2].partition("\n")[0].rstrip(".")

    return f"http://127.0.0.1:{eventually(told)}"
