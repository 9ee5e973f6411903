"""Every button acts on a real queue: each test looks into Redis afterwards."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from playwright.sync_api import expect

from sluicegate import RedisMessageQueue
from sluicegate.jobs import RedisJobQueue
from sluicegate.streams import RedisStreamQueue
from tests.support.flavours import MakeQueue, MakeStream
from tests.support.servers import RedisServer
from tests.web.browser.site import OpenWindow, Window


def toast(window: Window, text: str) -> None:
    window.shows(f".toast:has-text('{text}')", text)


def bury(queue: RedisMessageQueue, payloads: list[Any], error: Exception) -> list[str]:
    """Publish messages and bury them; return their ids."""
    queue.publish_many(payloads)
    with queue.claim(limit=len(payloads)) as lease:
        ids = [message.id for message in lease.messages]
        lease.bury(list(lease.messages), error=error)
    return ids


@pytest.mark.full  # the form is also filled in by the test of jobs
def test_the_form_publishes_what_was_typed(make_queue: MakeQueue, open_window: OpenWindow) -> None:
    queue = make_queue("orders")
    window = open_window().go("queue=orders")

    window.click("#publish")
    window.page.get_by_label("Payload").fill('{"id": 12345678901234567890')
    window.click("dialog >> text=Publish >> visible=true >> nth=-1")
    window.shows("dialog [role=alert]", "not JSON")
    window.page.get_by_label("Payload").fill('{"order_id": 7}')
    window.page.get_by_label("Deduplication key").fill("acme:7")
    window.page.get_by_label("Headers").fill("source: page\ntrace: a:b")
    window.page.get_by_label("Copies").fill("3")
    window.click("dialog button[type=submit]")
    toast(window, "1 message published, 2 duplicates refused")

    (message,) = queue.peek()
    assert message.json() == {"order_id": 7}
    assert (message.headers, message.deduplication_key) == ({"source": "page", "trace": "a:b"}, "acme:7")

    window.click("#publish")
    window.page.get_by_label("Payload").fill("plain text")
    window.page.get_by_label("Format").select_option("text")
    window.page.get_by_label("Delay in seconds").fill("600")
    window.click("dialog button[type=submit]")
    toast(window, "1 message published.")
    assert [each.payload for each in queue.peek(state="delayed")] == [b"plain text"]


@pytest.mark.full
def test_claims_are_paused_and_resumed(make_queue: MakeQueue, open_window: OpenWindow) -> None:
    queue = make_queue("orders")
    queue.publish("a")
    window = open_window().go("queue=orders")

    window.click("[data-action=pause]")
    window.shows(".view-head .marks", "paused")
    assert queue.depth().paused

    window.click("text=Resume")
    expect(window.find(".view-head .marks")).to_be_hidden()
    assert not queue.depth().paused


def test_dead_letters_are_searched_redriven_exported_and_purged(make_queue: MakeQueue, open_window: OpenWindow) -> None:
    queue = make_queue("orders")
    first, second, third = bury(queue, [{"n": 1}, {"n": 22}, {"n": 3}], ValueError("no price"))
    window = open_window().go("queue=orders")
    window.click("[data-tab=dead]")
    rows = window.find(".tab-panel tbody tr")
    expect(rows).to_have_count(3)
    window.shows(".error-text", "ValueError: no price")

    window.page.get_by_label("Search messages").fill("22")
    expect(rows).to_have_count(1)
    window.click(f"text={second}")
    expect(window.find("dialog pre")).to_have_text('{\n  "n": 22\n}')
    window.page.keyboard.press("Escape")
    window.page.check(f"[aria-label='Select {second}']")
    window.click("[data-action=redrive]")
    toast(window, "1 message redriven")
    assert [message.id for message in queue.peek()] == [second]

    window.page.get_by_label("Search messages").fill("")
    expect(rows).to_have_count(2)
    with window.page.expect_download() as download:
        window.click("[data-action=export]")
    assert download.value.suggested_filename == "orders-dead.jsonl"
    exported = [json.loads(line) for line in download.value.path().read_text().splitlines()]
    assert [each["id"] for each in exported] == [first, third]

    window.click("[data-action=redrive-all]")
    window.click("dialog button[type=submit]")
    toast(window, "2 messages redriven")
    assert queue.depth().dead == 0

    bury(queue, [{"n": 4}], ValueError("no price"))
    window.click("[data-action=refresh]")
    window.click("[data-action=purge]")
    purge = window.find("dialog button[type=submit]")
    expect(purge).to_be_disabled()
    window.page.keyboard.type("order")
    expect(purge).to_be_disabled()
    window.page.keyboard.type("s")
    purge.click()
    toast(window, "1 message purged")
    assert queue.depth().dead == 0


@pytest.mark.full
def test_only_dead_letters_are_purged_by_their_age(make_queue: MakeQueue, open_window: OpenWindow) -> None:
    queue = make_queue("orders", enable_completed_queue=True)
    queue.publish("a")
    with queue.claim():
        pass
    window = open_window().go("queue=orders")

    window.page.get_by_label("State").select_option("completed")
    expect(window.find(".tab-panel tbody tr")).to_have_count(1)
    window.click("[data-action=purge]")
    expect(window.page.get_by_label("Which")).to_have_count(0)
    window.page.keyboard.type("orders")
    window.page.keyboard.press("Enter")
    toast(window, "1 message purged")

    bury(queue, [{"n": 1}], ValueError("no price"))
    window.click("[data-tab=dead]")
    window.click("[data-action=purge]")
    window.page.get_by_label("Which").select_option("older than 1 hour")
    window.page.get_by_label("to confirm").fill("orders")
    window.page.keyboard.press("Enter")
    toast(window, "0 messages purged")
    assert queue.depth().dead == 1


@pytest.mark.full
def test_pages_of_large_messages_are_shorter_and_none_is_missed(
    make_queue: MakeQueue, open_window: OpenWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_queue("orders").publish_many([{"n": number, "text": "x" * 1000} for number in range(60)])
    monkeypatch.setattr("sluicegate.web.messages._MAX_PAGE_BYTES", 20_000)
    window = open_window().go("queue=orders")
    position = window.find(".pager .hint")

    expect(position).to_have_text(re.compile("^1 to "))
    first = position.inner_text()
    end = int(first.removeprefix("1 to "))
    assert end < 50
    window.click("text=Next")
    expect(position).to_have_text(re.compile(f"^{end + 1} to "))
    window.shows(".tab-panel tbody tr", f'{{"n":{end},')
    window.click("text=Back")
    expect(position).to_have_text(first)


@pytest.mark.full
def test_selected_messages_are_cancelled_and_others_purged(make_queue: MakeQueue, open_window: OpenWindow) -> None:
    queue = make_queue("orders")
    ids = queue.publish_many([{"n": 1}, {"n": 2}, {"n": 3}]).ids
    window = open_window().go("queue=orders")

    window.page.check(f"[aria-label='Select {ids[1]}']")
    window.click("[data-action=cancel]")
    toast(window, "1 message cancelled")
    assert [message.id for message in queue.peek()] == [ids[0], ids[2]]

    window.click("[data-action=purge]")
    window.click("dialog >> text=Cancel")
    assert queue.depth().pending == 2
    window.click("[data-action=purge]")
    window.page.get_by_label("to confirm").fill("orders")
    window.page.keyboard.press("Enter")
    toast(window, "2 messages purged")
    assert queue.depth().pending == 0


def test_leases_count_down_and_expired_ones_are_recovered(make_queue: MakeQueue, open_window: OpenWindow) -> None:
    queue = make_queue("orders")
    queue.publish_many([{"n": number} for number in range(5)])
    kept = queue.claim(limit=2, lease_seconds=300)
    lost = queue.claim(limit=3, lease_seconds=1, heartbeat=False)
    window = open_window().go("queue=orders")
    window.click("[data-tab=leases]")

    rows = window.find(".tab-panel tbody tr")
    expect(rows).to_have_count(2)
    window.shows(f"tr:has-text('{kept.id}')", "in 4 minutes")
    window.shows(f"tr:has-text('{lost.id}')", "the next claim recovers it")
    window.click("[data-tab=consumers]")
    expect(window.find(".tab-panel tbody tr")).to_have_count(1)
    window.click("[data-tab=leases]")

    window.click("[data-action=reap]")
    toast(window, "3 messages recovered")
    expect(rows).to_have_count(1)
    depth = queue.depth()
    assert (depth.returned, depth.in_flight, depth.expired) == (3, 2, 0)
    kept.release()


def test_jobs_show_their_progress_and_are_cancelled_and_redriven(
    client: Any, server: RedisServer, open_window: OpenWindow
) -> None:
    with RedisJobQueue("nightly", url=server.url) as jobs:
        waiting = jobs.enqueue({"n": 1}, kind="report", delay_seconds=600)
        running = jobs.enqueue({"n": 2}, kind="report")
        lease = jobs.claim_jobs()
        lease.jobs[0].update(0.4, "page 4 of 10")
        window = open_window().go("jobs=nightly")

        expect(window.find("tbody progress")).to_have_js_property("value", 0.4)
        window.shows(".note", "page 4 of 10")
        window.click("[data-action=cancel-job]")
        window.click("dialog button[type=submit]")
        window.shows(".note", "asked to stop")
        assert jobs.get(running).cancel_requested

        window.click("[data-status=delayed]")
        window.click("[data-action=cancel-job]")
        window.click("dialog button[type=submit]")
        window.shows(".empty", "No delayed jobs")
        assert jobs.get(waiting).status == "cancelled"

        window.click("#publish")
        window.page.get_by_label("Kind").fill("email")
        window.page.get_by_label("Payload").fill('{"n": 3}')
        window.click("dialog button[type=submit]")
        toast(window, "1 job enqueued")
        lease.jobs[0].cancel()
        with jobs.claim_jobs() as claimed:
            assert (claimed.jobs[0].kind, claimed.jobs[0].payload) == ("email", {"n": 3})
            claimed.jobs[0].fail(RuntimeError("smtp"), retry=False)
        window.click("[data-status=failed]")
        window.shows(".note", "smtp")
        window.click("[data-action=redrive-job]")
        toast(window, "Enqueued again")
        assert [job.kind for job in jobs.list("waiting")] == ["email"]


@pytest.mark.full
def test_a_stream_shows_its_messages_and_a_group_its_own(
    make_queue: MakeQueue, make_stream: MakeStream, open_window: OpenWindow
) -> None:
    stream: RedisStreamQueue = make_stream("events")
    stream.publish_many([{"n": number} for number in range(60)])
    stream.group("billing").create("beginning")
    window = open_window().go("stream=events")

    rows = window.find(".tab-panel tbody tr")
    expect(rows).to_have_count(50)
    window.click("text=Next")
    expect(rows).to_have_count(10)
    window.click("#publish")
    window.page.get_by_label("Payload").fill('{"n": 60}')
    window.click("dialog button[type=submit]")
    toast(window, "1 message published")
    assert stream.info().length == 61

    window.click("a:has-text('billing')")
    window.shows(".tile:has-text('Ready')", "61")
    window.click("[data-action=pause]")
    window.shows(".view-head .marks", "paused")
    assert stream.group("billing").depth().paused


@pytest.mark.full
def test_a_read_only_page_has_no_buttons_that_change_anything(make_queue: MakeQueue, open_window: OpenWindow) -> None:
    queue = make_queue("orders")
    bury(queue, [{"n": 1}], ValueError("no price"))
    window = open_window(read_only=True).go("queue=orders")

    window.shows(".bar", "read only")
    window.click("[data-tab=dead]")
    expect(window.find("[data-action=export]")).to_be_visible()
    for selector in ("#publish", "[data-action=pause]", "[data-action=redrive]", "[data-action=purge]", "tbody input"):
        expect(window.find(selector)).to_have_count(0)


@pytest.mark.full
def test_a_write_after_a_restart_of_the_server_is_sent_again_with_a_new_token(
    make_queue: MakeQueue, open_site: Any, open_window: OpenWindow
) -> None:
    queue = make_queue("orders")
    queue.publish("a")
    window = open_window(open_site(access=_Anybody())).go("queue=orders")
    window.page.evaluate("fetch('api/session')")
    stale = "x" * 64
    window.page.route(
        "**/api/pause*",
        lambda route: route.continue_(headers={**route.request.headers, "x-sluicegate-csrf": stale}),
        times=1,
    )

    window.click("[data-action=pause]")

    window.shows(".view-head .marks", "paused")
    assert queue.depth().paused


class _Anybody:
    """Lets everybody in."""

    def may_look(self, request: Any) -> bool:
        return True

    def may_act(self, request: Any) -> bool:
        return True
