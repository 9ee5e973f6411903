"""Whatever publishers, workers and other programs put into Redis stays text on the page."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
import redis
from playwright.sync_api import expect

from sluicegate.gates import Gate
from sluicegate.jobs import RedisJobQueue
from tests.support.flavours import MakeQueue, MakeStream
from tests.support.servers import RedisServer
from tests.web.browser.site import OpenWindow, Window

# Each would set this mark, open a dialog or ask another site, if it were more than text.
MARK = "window.marked=1"
ATTACKS = (
    f"<img src=x onerror={MARK}>",
    f"<script>{MARK}</script>",
    f'"><svg onload={MARK}>',
    f"javascript:{MARK}",
    "<iframe srcdoc='<script>parent.marked=1</script>'></iframe>",
    "{{constructor.constructor('window.marked=1')()}}",
)
HIDDEN = "abc\u202egpj.exe\u2066\u0000"
SHOWN = "abc\\u202egpj.exe\\u2066\\u0000"


def intact(window: Window) -> None:
    """Assert that nothing of these texts has become an element or was run."""
    assert window.page.evaluate("window.marked") is None
    assert window.find("main img, main script, main iframe, main a[href^='javascript']").count() == 0
    assert window.find("dialog img, dialog script, dialog iframe").count() == 0


@pytest.mark.parametrize("attack", [ATTACKS[0], *(pytest.param(each, marks=pytest.mark.full) for each in ATTACKS[1:])])
def test_names_payloads_headers_keys_and_errors_stay_text(
    attack: str, make_queue: MakeQueue, open_window: OpenWindow
) -> None:
    queue = make_queue(attack, get_deduplication_key=lambda _: attack)
    queue.publish({"text": attack, attack: 1}, headers={"from": attack, attack: "x"})
    with queue.claim() as lease:
        lease.bury(list(lease.messages), error=ValueError(attack), reason=attack[:100])
    queue.publish({"text": attack})
    window = open_window(gates={attack: {attack: Gate(min_ready=5)}}, title=attack).go()

    expect(window.find(".place-link")).to_have_text([attack])
    window.click(".place-link")
    expect(window.find("h1")).to_have_text(attack)
    expect(window.find(".gate-label").first).to_contain_text(attack)
    intact(window)

    window.click("[data-tab=dead]")
    expect(window.find(".error-text")).to_contain_text(attack)
    window.click(".tab-panel .link")
    expect(window.find("dialog pre")).to_contain_text(attack[:10])
    expect(window.find("dialog .facts dd").filter(has_text=attack).first).to_be_visible()
    intact(window)
    window.page.keyboard.press("Escape")

    window.page.get_by_label("Search messages").fill(attack[:20])
    expect(window.find(".tab-panel tbody tr")).to_have_count(1)
    window.click("[data-action=purge]")
    expect(window.find("dialog label code")).to_have_text(attack)
    intact(window)


@pytest.mark.full
def test_jobs_streams_and_consumers_stay_text(
    client: redis.Redis, server: RedisServer, make_stream: MakeStream, open_window: OpenWindow
) -> None:
    attack = ATTACKS[0]
    stream = make_stream("events")
    stream.publish({"text": attack})
    stream.group(attack).create("beginning")
    with RedisJobQueue("nightly", url=server.url, worker=attack) as jobs:
        jobs.enqueue({"text": attack}, kind=attack)
        lease = jobs.claim_jobs()
        lease.jobs[0].update(0.5, attack)
        window = open_window().go("jobs=nightly")

        expect(window.find(".note")).to_have_text(attack)
        expect(window.find("tbody .badge")).to_have_text(attack)
        window.click(".tab-panel .link")
        expect(window.find("dialog dd").filter(has_text=attack).first).to_be_visible()
        intact(window)
        window.page.keyboard.press("Escape")
        window.click("[data-tab=leases]")
        expect(window.find(".tab-panel tbody td").nth(1)).to_contain_text(attack[:10])
        intact(window)
        lease.release()
    window.go("stream=events")
    expect(window.find(".plain-list a")).to_have_text(attack)
    window.click(".tab-panel .link")
    intact(window)


@pytest.mark.full
def test_characters_that_hide_or_reorder_text_are_shown_as_their_codes(
    make_queue: MakeQueue, open_window: OpenWindow
) -> None:
    queue = make_queue(HIDDEN)
    queue.publish({"file": "a"}, headers={"name": HIDDEN.rstrip("\0")})
    window = open_window().go()

    expect(window.find(".place-link")).to_have_text([SHOWN])
    window.go(f"queue={quote(HIDDEN)}")
    expect(window.find("h1")).to_have_text(SHOWN)
    window.click(".tab-panel .link")
    expect(window.find("dialog")).to_contain_text(SHOWN.removesuffix("\\u0000"))


def test_json_is_indented_without_changing_a_digit_and_ages_are_words(open_window: OpenWindow) -> None:
    window = open_window().go()

    def indented(text: str) -> Any:
        return window.page.evaluate("async (text) => (await import('./static/format.js')).indentJson(text)", text)

    assert indented('{"id":12345678901234567890,"z":1.10,"a":[],"b":{},"s":"a,b:{c}\\"[","t":[1,{"u":null}]}') == (
        '{\n  "id": 12345678901234567890,\n  "z": 1.10,\n  "a": [],\n  "b": {},\n  "s": "a,b:{c}\\"[",\n'
        '  "t": [\n    1,\n    {\n      "u": null\n    }\n  ]\n}'
    )
    ages = "async (all) => { const { age } = await import('./static/format.js'); return all.map((one) => age(one)); }"
    assert window.page.evaluate(ages, [0.2, 61, 3600, 90061, 1e6]) == [
        "just now",
        "1 minute 1 second",
        "1 hour",
        "1 day 1 hour",
        "11 days",
    ]
