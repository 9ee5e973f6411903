"""Dagster's page in a window of the machine's own Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Page

from tests.support.browser import SCREENSHOTS, program, running

__all__ = ["MISSING", "keep", "opened", "program"]

MISSING = "Dagster's page in a browser (apt-get install chromium)"
_WAIT_SECONDS = 30


@contextmanager
def opened(url: str) -> Iterator[Page]:
    """Yield a window on a site, which waits for what it shall show or click."""
    with running() as browser:
        page = browser.new_page(base_url=url, viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(1000 * _WAIT_SECONDS)
        yield page


def keep(page: Page, name: str) -> None:
    """Write what is visible into `build/screenshots`."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"dagster-{name}.png")
