"""The machine's own Chromium, which opens Dagster's page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Page, sync_playwright

from tests.support.project import ROOT

MISSING = "Dagster's page in a browser (apt-get install chromium)"
SCREENSHOTS = ROOT / "build" / "screenshots"
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_WAIT_SECONDS = 30


def program() -> str | None:
    """Return the browser of this machine; None without one."""
    return next((found for name in _PROGRAMS if (found := shutil.which(name))), None)


@contextmanager
def opened(url: str) -> Iterator[Page]:
    """Yield a window on a site, which waits for what it shall show or click."""
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--headless=new"]  # containers run as root
        browser = playwright.chromium.launch(executable_path=program(), args=flags)
        page = browser.new_page(base_url=url, viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(1000 * _WAIT_SECONDS)
        try:
            yield page
        finally:
            browser.close()


def keep(page: Page, name: str) -> None:
    """Write what is visible into `build/screenshots`."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"dagster-{name}.png")
