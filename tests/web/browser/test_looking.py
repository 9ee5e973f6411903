"""What people see: every place, live, in any order; and what they see while something is away."""

from __future__ import annotations

import re
from typing import Any

import pytest
import redis
from playwright.sync_api import Browser, expect

from sluicegate import RedisMessageQueue
from sluicegate.gates import Gate
from sluicegate.jobs import RedisJobQueue
from tests.support.flavours import MakeQueue, MakeStream
from tests.support.servers import RedisServer, free_port
from tests.web.browser.site import TOKEN, OpenWindow, Window, new_context

NAMES = ".place-link"
GROUP = "events \u203a billing"


def test_the_overview_is_live_and_can_be_filtered_and_sorted(
    make_queue: MakeQueue, make_stream: MakeStream, open_window: OpenWindow
) -> None:
    orders, payments = make_queue("orders"), make_queue("payments")
    orders.publish_many([{"n": number} for number in range(1200)])
    payments.publish({"n": 1})
    make_stream("events").group("billing").create("beginning")
    window = open_window().go()

    expect(window.find(NAMES)).to_have_text(["events", GROUP, "orders", "payments"])
    window.shows("tr:has-text('orders') .cell-ready", "1,200")
    window.shows(".live", "Live")

    spark, oldest = window.find("tr:has-text('orders') .spark-line"), window.find("tr:has-text('orders') .cell-oldest")
    age = oldest.inner_text()
    payments.publish_many([{"n": number} for number in range(2, 6)])
    window.shows("tr:has-text('payments') .cell-ready", "5")  # without a reload
    # What did not change is not sent again; its line and its age grow all the same.
    expect(oldest).not_to_have_text(age)
    expect(spark).to_have_attribute("d", re.compile("L.*L"))
    expect(window.find("tr:has-text('orders') .cell-ready")).to_have_text("1,200")

    window.click("[data-sort=ready]")
    expect(window.find(NAMES).first).to_have_text("orders")
    window.click("[data-kind=stream]")
    expect(window.find(NAMES)).to_have_text(["events", GROUP])
    window.page.fill("#filter", "bill")
    expect(window.find(NAMES)).to_have_text([GROUP])
    window.page.fill("#filter", "nothing like it")
    window.shows(".empty", "Nothing matches")
    window.click("text=Show everything")
    expect(window.find(NAMES)).to_have_count(4)


def test_a_place_shows_its_depth_over_time_with_the_lines_of_its_gates(
    make_queue: MakeQueue, open_window: OpenWindow
) -> None:
    queue = make_queue("orders")
    queue.publish_many([{"n": number} for number in range(30)])
    gates = {"orders": {"drain": Gate(min_ready=40, max_age_seconds=600), "alarm": Gate(min_dead=3)}}
    window = open_window(gates=gates).go("queue=orders")

    expect(window.find(".gate-label")).to_have_text(["drain: 40", "alarm: 3 dead", "drain: 10 minutes"])
    window.shows(".gate:has-text('drain')", "ready: 30 of 40")
    window.shows(".gate:has-text('drain') .badge", "closed")
    window.shows(".chart-readout", "ready 30")

    queue.publish_many([{"n": number} for number in range(30, 42)])
    window.shows(".gate:has-text('drain') .badge", "open")
    window.shows(".view-head .marks", "gate open")
    window.shows(".chart-readout", "ready 42")
    # Single times are read with the keyboard.
    window.find(".chart-plot").first.focus()
    window.page.keyboard.press("Home")
    window.shows(".chart-values", "ready 30")


@pytest.mark.full
def test_the_page_says_that_its_connection_is_lost_and_finds_it_again(
    make_queue: MakeQueue, open_site: Any, open_window: OpenWindow
) -> None:
    queue, port = make_queue("orders"), free_port()
    queue.publish("a")
    site = open_site(port=port)
    window = open_window(site).go()
    window.shows(".live", "Live")

    site.close()
    window.shows(".live", "Reconnecting")
    queue.publish("b")
    make_queue("payments").publish("a")
    open_site(port=port)

    window.click(".live")  # or waits for the next attempt
    window.shows(".live", "Live")
    window.shows("tr:has-text('orders') .cell-ready", "2")
    expect(window.find(NAMES)).to_have_text(["orders", "payments"])


@pytest.mark.full
def test_a_link_that_names_a_job_list_as_a_queue_leads_to_its_jobs(
    client: redis.Redis, server: RedisServer, open_window: OpenWindow
) -> None:
    with RedisJobQueue("nightly", url=server.url) as jobs:
        jobs.enqueue({"n": 1}, kind="report", delay_seconds=600)
    window = open_window().go("queue=nightly")

    window.shows(".view-head", "jobs")
    window.click("[data-status=delayed]")
    window.shows("tbody", "report")
    assert window.page.url.endswith("#jobs=nightly")
    window.page.go_back()  # to what was before the link, not to the link
    assert "nightly" not in window.page.url


@pytest.mark.full
def test_a_visitor_logs_in_and_out(browser: Browser, make_queue: MakeQueue, open_site: Any) -> None:
    make_queue("orders").publish("a")
    context = new_context(browser)
    window = Window(context.new_page(), open_site().url)
    page = window.page

    page.goto(window.url)
    page.get_by_label("Token").fill("a wrong one")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("not the token")
    page.get_by_label("Token").fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page.locator(NAMES)).to_have_text(["orders"])
    assert page.url.rstrip("/") == window.url.rstrip("/")

    page.click("text=Log out")
    expect(page.get_by_label("Token")).to_be_visible()
    page.goto(window.url)
    expect(page.get_by_label("Token")).to_be_visible()
    context.close()
    assert not window.problems


@pytest.mark.full
def test_an_empty_server_says_what_will_appear(open_window: OpenWindow) -> None:
    window = open_window(prefix="").go()

    window.shows(".empty", "appears with its first message")
    window.go("queue=never")
    window.shows(".why", "no such queue yet")


@pytest.mark.full
def test_the_page_says_that_redis_is_away_and_keeps_the_last_values(
    own_server: RedisServer, open_window: OpenWindow
) -> None:
    with RedisMessageQueue("orders", url=own_server.url) as queue:
        queue.publish_many(["a", "b"])
        window = open_window(url=own_server.url).go()
        window.shows("tr:has-text('orders') .cell-ready", "2")

        own_server.stop()
        window.shows("#trouble", "Redis cannot be read")
        window.shows("tr:has-text('orders') .cell-ready", "2")
        window.go("queue=orders")
        window.click("[data-action=refresh]")
        window.shows(".tab-panel .notice", "Try again")

        own_server.start()
        expect(window.find("#trouble")).to_be_hidden(timeout=20_000)
        window.click("text=Try again")
        expect(window.find(".tab-panel tbody tr")).to_have_count(2)


@pytest.mark.full
def test_what_is_masked_is_nowhere_in_the_page(make_queue: MakeQueue, open_window: OpenWindow) -> None:
    queue = make_queue("orders")
    queue.publish({"card": {"number": "4111-1111"}, "n": 1}, headers={"authorization": "secret-token"})
    window = open_window(masks=["card.number", "headers.authorization"]).go("queue=orders")

    window.shows(".bar", "masked")
    window.click(".tab-panel .link")
    window.shows("dialog", "Parts of the payload or of the headers are masked")
    everything = window.page.content()
    assert "4111-1111" not in everything
    assert "secret-token" not in everything


@pytest.mark.full
def test_two_hundred_places_are_shown_and_the_rest_on_demand(make_queue: MakeQueue, open_window: OpenWindow) -> None:
    for number in range(203):
        make_queue(f"queue-{number:03}").publish("a")
    window = open_window().go()

    expect(window.find(NAMES)).to_have_count(200)
    window.click("text=Show all 203")
    expect(window.find(NAMES)).to_have_count(203)
