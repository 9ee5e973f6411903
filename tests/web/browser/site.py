"""The page on a port of this machine, mounted under a prefix, and windows that open it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi import FastAPI
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Request, expect

from tests.support.browser import SCREENSHOTS
from tests.support.waiting import wait_until

TOKEN = "a-token-that-nobody-guesses"
PREFIX = "/ops/queues"
DESKTOP, PHONE = (1400, 950), (390, 844)
_WAIT_MS = 10_000


class Site:
    """Serves an application in a thread.

    Args:
        app: the page.
        port: to listen on.
        prefix: where the page is mounted; "" serves it alone.
    """

    def __init__(self, app: FastAPI, port: int, prefix: str = PREFIX) -> None:
        served = app
        self.has_login: bool = app.state.has_login
        if prefix:
            served = FastAPI()
            served.mount(prefix, app)
        self.url = f"http://127.0.0.1:{port}{prefix}/"
        config = uvicorn.Config(
            served, port=port, log_level="error", lifespan="off", timeout_graceful_shutdown=1, access_log=False
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, name="site", daemon=True)
        self._thread.start()
        wait_until(lambda: self._server.started, "the site answers")

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=20)
        assert not self._thread.is_alive(), "the site did not end"


def log_in(context: BrowserContext, url: str) -> None:
    """Log a profile in, as the form does."""
    assert context.request.post(f"{url}login", form={"token": TOKEN}).ok


@dataclass
class Window:
    """A window of the browser; whatever goes wrong inside it is collected.

    Attributes:
        page: what Playwright controls.
        url: of the site.
        problems: errors of scripts, refusals of the content security policy, dialogs, and requests to other sites.
    """

    page: Page
    url: str
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(_WAIT_MS)
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("console", self._on_console)
        self.page.on("dialog", self._on_dialog)
        self.page.on("request", self._on_request)

    def go(self, place: str = "") -> Window:
        """Open the overview, or the place that a fragment names."""
        self.page.goto(f"{self.url}#{place}")
        expect(self.page.locator("h1")).to_be_visible()
        return self

    def click(self, selector: str) -> None:
        self.page.click(selector)

    def find(self, selector: str) -> Locator:
        return self.page.locator(selector)

    def text(self, selector: str) -> str:
        return self.page.locator(selector).inner_text()

    def shows(self, selector: str, text: str) -> None:
        """Wait until an element holds a text."""
        expect(self.page.locator(selector).first).to_contain_text(text, timeout=_WAIT_MS)

    def keep(self, name: str) -> None:
        """Write what is visible into `build/screenshots`."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"page-{name}.png")

    def _on_console(self, message: Any) -> None:
        # A refusal of the server is shown to the person; the browser writes a line about each, too.
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            self.problems.append(f"console: {message.text}")

    def _on_dialog(self, dialog: Any) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.problems.append(f"request to {request.url}")


OpenWindow = Callable[..., Window]


def new_context(
    browser: Browser, *, size: tuple[int, int] = DESKTOP, dark: bool = False, **options: Any
) -> BrowserContext:
    """Return a profile of its own."""
    return browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
        **options,
    )


def fits(window: Window) -> bool:
    """Return whether the page is no wider than the window."""
    return bool(window.page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))
