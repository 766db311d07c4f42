"""A real Chromium without a network, for tests of pages; and what it said and asked for."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

_QUIET = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)
_READY_S = 60


class Browser:
    """One tab. `script` evaluates JavaScript's `return ...` in the page."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, page: Path, *, dark: bool = False) -> None:
        """Open a file with the network off, and wait until it says that it is ready."""
        self.command("Network.enable")
        self.command(
            "Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        self.driver.get(page.as_uri())
        self.wait("return document.documentElement.dataset.ready === 'true'", "the page never got ready")

    def command(self, name: str, **parameters: Any) -> Any:
        return self.driver.execute_cdp_cmd(name, parameters)

    def script(self, text: str, *arguments: Any) -> Any:
        return self.driver.execute_script(text, *arguments)

    def wait(self, condition: str, otherwise: str) -> None:
        deadline = time.monotonic() + _READY_S
        while not self.script(condition):
            assert time.monotonic() < deadline, f"{otherwise}: {self.said()}"
            time.sleep(0.05)

    def said(self) -> list[str]:
        """Return what the console got since the last call: errors, warnings, violations of the policy."""
        return [entry["message"] for entry in self._log("browser")]

    def asked_for(self) -> list[str]:
        """Return the addresses of all requests since the last call."""
        events = [json.loads(entry["message"])["message"] for entry in self._log("performance")]
        return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]

    def _log(self, kind: str) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self.driver.get_log(kind)  # type: ignore[no-untyped-call]
        return entries


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """Run a Chromium with an empty profile; skips the test, and says so, where none is installed."""
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    server = shutil.which("chromedriver")
    if binary is None or server is None:
        pytest.skip("no Chromium here (apt-get install chromium chromium-driver): the page is NOT tested in a browser")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*_QUIET, f"--user-data-dir={profile}", "--window-size=1320,1000"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(server))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
