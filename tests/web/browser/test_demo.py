"""The demo runs real jobs: each control is tried in the browser, and its effect read from Redis."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from playwright.sync_api import Browser, expect

from sluicegate.errors import ConfigurationError
from sluicegate.web.demo import Demo, DemoSettings, create_demo
from tests.support.project import ROOT
from tests.support.servers import RedisServer, free_port
from tests.support.waiting import wait_until
from tests.web.browser.site import PHONE, Site, Window, fits, new_context

FAST = DemoSettings(workers=0, latency_ms=50, fail_percent=0, hang_percent=0)


@pytest.fixture
def demo(client: redis.Redis, server: RedisServer) -> Iterator[Demo]:
    """Yield a demo without workers, whose leases last two seconds."""
    with create_demo(server.url, FAST, lease_seconds=2.0, first_jobs=0) as running:
        yield running


@pytest.fixture
def window(demo: Demo, browser: Browser) -> Iterator[Window]:
    """Yield a window that was opened by the demo's link."""
    site = Site(demo.app, free_port(), prefix="")
    context = new_context(browser)
    opened = Window(context.new_page(), site.url)
    opened.page.goto(site.url.rstrip("/") + demo.link)
    expect(opened.page.locator("h1")).to_have_text("Demo")
    yield opened
    context.close()
    site.close()
    assert not opened.problems


def knob(window: Window, name: str, value: int) -> None:
    """Move a control as the keyboard or mouse does."""
    window.find(f"#knob-{name}").fill(str(value))


def test_jobs_of_hanging_workers_return_by_the_sweep_and_are_completed(demo: Demo, window: Window) -> None:
    window.click("[data-size='1']")
    window.click("[data-kind=email]")
    window.click("[data-size='10']")
    window.click("[data-kind=invoice]")
    window.shows("[data-lane=pending] .lane-count", "11")
    assert {job.kind for job in demo.jobs.list("waiting")} == {"email", "invoice"}

    knob(window, "hang_percent", 100)
    wait_until(lambda: demo.pool.settings.hang_percent == 100, "the hang rate is set")
    knob(window, "workers", 2)
    wait_until(lambda: demo.jobs.depth().in_flight >= 2, "workers hang")
    knob(window, "workers", 0)  # soon, or jobs would hang three times and fail
    wait_until(lambda: not demo.pool.doing() and demo.jobs.depth().expired >= 2, "leases have expired")
    window.shows("[data-lane=processing] .is-hung", "lease expired")

    window.click("[data-action=reclaim]")
    window.shows(".demo-controls", "returned to the queue")
    window.shows("[data-lane=pending] .is-back", "returned to the queue")
    assert demo.jobs.stats().reclaimed_jobs >= 2

    knob(window, "hang_percent", 0)
    wait_until(lambda: demo.pool.settings.hang_percent == 0, "the hang rate is set")
    knob(window, "workers", 4)
    window.shows("[data-lane=completed] .lane-count", "11")
    assert demo.jobs.stats().completed_jobs == 11


@pytest.mark.full
def test_failing_jobs_are_tried_three_times_and_redriven(demo: Demo, window: Window) -> None:
    knob(window, "fail_percent", 100)
    wait_until(lambda: demo.pool.settings.fail_percent == 100, "the failure rate is set")
    window.click("[data-kind=webhook]")
    knob(window, "workers", 8)
    window.shows("[data-lane=failed] .lane-count", "10")
    window.shows("[data-lane=failed] .job-state", "the endpoint answered 503")
    assert {job.attempts for job in demo.jobs.list("failed")} == {3}

    knob(window, "workers", 0)
    wait_until(lambda: not demo.pool.doing(), "the workers have stopped")
    assert fits(window)
    window.page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    assert fits(window)
    window.click("[data-action=redrive]")
    window.shows("[data-lane=pending] .lane-count", "10")
    assert demo.jobs.depth().dead == 0


@pytest.mark.full
def test_the_link_opens_the_page_once_only(demo: Demo, window: Window, browser: Browser) -> None:
    other = new_context(browser)
    again = other.request.get(window.url.rstrip("/") + demo.link)
    assert again.status == 403
    assert "used before" in again.text()
    assert other.request.get(f"{window.url}api/demo/state").status == 401
    assert other.request.post(f"{window.url}api/demo/reclaim", data={}).status == 401
    other.close()


@pytest.mark.parametrize(
    "changes", [{"workers": 17}, {"workers": -1}, {"latency_ms": 0}, {"fail_percent": 101}, {"hang_percent": -5}]
)
def test_a_setting_outside_its_bounds_changes_nothing(demo: Demo, changes: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match=f"{next(iter(changes))} must be from"):
        demo.pool.change(**changes)

    assert demo.pool.settings == FAST


@pytest.mark.full
def test_the_program_prints_its_link_and_leaves_nothing_behind(browser: Browser) -> None:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "sluicegate.web.demo", "--port", str(port)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    began = time.monotonic()
    try:
        assert process.stdout is not None
        link = next(found[0] for line in process.stdout if (found := re.search(r"http://\S+once=\S+", line)))
        opened_after = time.monotonic() - began
        context = new_context(browser)
        page = context.new_page()
        page.goto(link)
        expect(page.locator("[data-lane=completed] .lane-count")).not_to_have_text("0")
        folder = page.locator("#server").inner_text().removeprefix("embedded:")
        assert Path(folder).is_dir()
        context.close()
    finally:
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "its data are gone" in output
    assert not Path(folder).exists()
    assert opened_after < 30
