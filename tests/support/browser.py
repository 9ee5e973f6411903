"""The machine's own Chromium, which opens pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from tests.support.project import ROOT

SCREENSHOTS = ROOT / "build" / "screenshots"
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def program() -> str | None:
    """Return the browser of this machine; None without one."""
    return next((found for name in _PROGRAMS if (found := shutil.which(name))), None)


@contextmanager
def running() -> Iterator[Browser]:
    """Yield a browser; while it runs, its thread cannot call `asyncio.run`."""
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--headless=new"]  # containers run as root
        browser = playwright.chromium.launch(executable_path=program(), args=flags)
        try:
            yield browser
        finally:
            browser.close()
