"""The page works for everybody: axe finds nothing serious, and the keyboard reaches everything."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from sluicegate.gates import Gate
from sluicegate.jobs import RedisJobQueue
from tests.support.flavours import MakeQueue
from tests.support.servers import RedisServer
from tests.web.browser.site import DESKTOP, PHONE, OpenWindow, Window, fits

LOOKS = [
    pytest.param(DESKTOP, False, id="desktop-light"),
    pytest.param(PHONE, True, id="phone-dark"),
    pytest.param(DESKTOP, True, id="desktop-dark"),
    pytest.param(PHONE, False, id="phone-light"),
]


def serious(window: Window) -> list[str]:
    """Return what axe objects to, contrast included, but for what it calls minor."""
    found: Any = Axe().run(window.page).response
    return [
        f"{each['id']} ({each['impact']}): {[node['html'][:200] for node in each['nodes']]}"
        for each in found["violations"]
        if each["impact"] in ("moderate", "serious", "critical")
    ]


@pytest.mark.full
@pytest.mark.parametrize(("size", "dark"), LOOKS)
def test_axe_finds_nothing_serious(
    size: tuple[int, int],
    dark: bool,
    client: redis.Redis,
    server: RedisServer,
    make_queue: MakeQueue,
    open_window: OpenWindow,
) -> None:
    queue = make_queue("orders")
    queue.publish_many([{"n": number} for number in range(9)])
    with queue.claim(limit=3) as lease:
        lease.bury(list(lease.messages), error=ValueError("no price"))
    held = queue.claim(limit=2, lease_seconds=300)
    with RedisJobQueue("nightly", url=server.url) as jobs:
        jobs.enqueue({"n": 1}, kind="report")
        job = jobs.claim_jobs()
        job.jobs[0].update(0.5, "half of it")
        gates = {"orders": Gate(min_ready=3, max_age_seconds=60)}
        window = open_window(size=size, dark=dark, gates=gates).go()
        look = f"{'phone' if size == PHONE else 'desktop'}-{'dark' if dark else 'light'}"
        expect(window.find(".place-link")).to_have_count(2)
        assert (serious(window), fits(window)) == ([], True)
        window.keep(f"overview-{look}")

        window.go("queue=orders")
        for tab in ("leases", "dead"):
            window.click(f"[data-tab={tab}]")
            expect(window.find(".tab-panel tbody tr").first).to_be_visible()
            assert (serious(window), fits(window)) == ([], True)
        window.keep(f"queue-{look}")
        window.click(".tab-panel .link")
        expect(window.find("dialog pre")).to_be_visible()
        assert serious(window) == []
        window.page.keyboard.press("Escape")
        window.click("#publish")
        assert serious(window) == []
        window.page.keyboard.press("Escape")

        window.go("jobs=nightly")
        expect(window.find("tbody progress")).to_be_visible()
        assert (serious(window), fits(window)) == ([], True)
        job.release()
    held.release()


def test_axe_finds_nothing_serious_at_first_sight(make_queue: MakeQueue, open_window: OpenWindow) -> None:
    make_queue("orders").publish_many([{"n": number} for number in range(3)])
    window = open_window(gates={"orders": Gate(min_ready=5)}).go()

    expect(window.find(".place-link")).to_have_count(1)
    assert (serious(window), fits(window)) == ([], True)
    window.keep("first-desktop-light")
    window.page.emulate_media(color_scheme="dark")
    window.page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    window.go("queue=orders")
    expect(window.find(".tab-panel tbody tr")).to_have_count(3)
    assert (serious(window), fits(window)) == ([], True)
    window.keep("first-phone-dark")


def test_the_keyboard_alone_leads_from_the_overview_to_a_redriven_message(
    make_queue: MakeQueue, open_window: OpenWindow
) -> None:
    make_queue("first").publish("a")
    queue = make_queue("second")
    queue.publish_many([{"n": 1}, {"n": 2}])
    with queue.claim(limit=2) as lease:
        lease.bury(list(lease.messages), error=ValueError("no price"))
    window = open_window().go()
    expect(window.find(".place-link")).to_have_count(2)
    press, focused = window.page.keyboard.press, window.find(":focus")

    press("Tab")
    expect(focused).to_have_text("Skip to content")
    expect(focused).to_be_in_viewport()
    press("Enter")
    expect(focused).to_have_id("main")
    press("/")
    expect(focused).to_have_id("filter")
    window.page.keyboard.type("sec")
    press("Tab")
    press("Escape")
    press("j")
    expect(focused).to_have_text("second")
    assert window.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    press("Enter")
    expect(window.find("h1")).to_have_text("second")
    expect(focused).to_have_id("main")
    press("4")
    expect(window.find("[data-tab=dead]")).to_have_attribute("aria-selected", "true")
    window.find("[data-tab=dead]").focus()
    press("ArrowRight")  # the tabs form a ring
    expect(focused).to_have_text("Messages")
    press("ArrowLeft")
    expect(window.find(".tab-panel tbody tr")).to_have_count(2)

    window.find(".tab-panel tbody input").first.focus()
    press("Space")
    window.find("[data-action=redrive]").focus()
    press("Enter")
    window.shows(".toast", "1 message redriven")
    assert queue.depth().pending == 1

    press("?")
    expect(window.find("dialog[open] h2")).to_have_text("Keyboard shortcuts")
    press("Escape")
    expect(window.find("dialog")).to_have_count(0)


@pytest.mark.full
def test_single_key_shortcuts_can_be_switched_off(make_queue: MakeQueue, open_window: OpenWindow) -> None:
    make_queue("orders").publish("a")
    window = open_window().go("queue=orders")

    window.page.keyboard.press("?")
    window.page.get_by_label("single keys are shortcuts").uncheck()
    window.page.keyboard.press("Escape")
    window.page.keyboard.press("p")
    expect(window.find("dialog")).to_have_count(0)
    window.page.keyboard.press("?")
    window.page.get_by_label("single keys are shortcuts").check()
    window.page.keyboard.press("Escape")
    window.page.keyboard.press("p")
    window.shows("dialog h2", "Publish to orders")
