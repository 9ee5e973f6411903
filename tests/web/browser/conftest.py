"""Windows on a page of the test's server. A window in which anything went wrong fails its test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from playwright.sync_api import Browser

from sluicegate.web import TokenAccess, create_app
from tests.support import browser as machine
from tests.support import not_run
from tests.support.servers import RedisServer, free_port
from tests.web.browser.site import PREFIX, TOKEN, OpenWindow, Site, Window, log_in, new_context

MISSING = "the web page in a browser (apt-get install chromium)"
# Without a browser, a run that would need it lists it as not run.
collect_ignore_glob = [] if machine.program() else ["test_*.py"]


def pytest_collection_finish(session: pytest.Session) -> None:
    if collect_ignore_glob and any(Path(__file__).parent.parent in item.path.parents for item in session.items):
        not_run.note(MISSING)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Yield a browser for the tests of this package: those that follow may call `asyncio.run` again."""
    with machine.running() as running:
        yield running


@pytest.fixture
def open_site(client: redis.Redis, server: RedisServer) -> Iterator[Any]:
    """Yield a function that serves a page of the test's server and returns its address."""
    made: list[tuple[Any, Site]] = []

    def open_site(*, prefix: str = PREFIX, port: int | None = None, **options: Any) -> Site:
        app = create_app(**{"url": server.url, "access": TokenAccess(TOKEN), **options})
        made.append((app, Site(app, port or free_port(), prefix)))
        return made[-1][1]

    yield open_site
    for app, site in made:
        site.close()
        app.state.close()


@pytest.fixture
def open_window(browser: Browser, open_site: Any) -> Iterator[OpenWindow]:
    """Yield a function that opens a window, on a page of its own unless a site is given."""
    windows: list[Window] = []
    contexts = []

    def open_window(
        site: Site | None = None, *, size: tuple[int, int] = (1400, 950), dark: bool = False, **options: Any
    ) -> Window:
        at = site or open_site(**options)
        context = new_context(browser, size=size, dark=dark)
        contexts.append(context)
        if at.has_login:
            log_in(context, at.url)
        windows.append(Window(context.new_page(), at.url))
        return windows[-1]

    yield open_window
    for context in contexts:
        context.close()
    problems = [problem for window in windows for problem in window.problems]
    assert not problems, problems
