"""What a person sees in the browser; the pictures are in `build/screenshots`."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.dagster.live import browser
from tests.dagster.live.gate import LiveGate

pytestmark = [pytest.mark.dagster, pytest.mark.slow, pytest.mark.full]


def test_the_page_shows_the_gate_and_what_it_drained(drained: LiveGate) -> None:
    # The ticks before it found the run in flight, and the page shows the newest one only.
    drained.deployment.wait(
        lambda: "0 messages ready in 'orders'" in (drained.ticks()[-1].skip_reason or ""),
        "a tick finds the queue empty",
    )
    with browser.opened(drained.deployment.url) as page:
        page.goto("/locations/gates/sensors/orders_gate")
        expect(page.get_by_text("Requests a run when 3 messages are ready in the queue")).to_be_visible()
        page.get_by_text("1 run requested").first.wait_for()
        browser.keep(page, "sensor")
        page.get_by_role("button", name="0 runs requested").first.click()
        expect(page.get_by_text("0 messages ready in 'orders'")).to_be_visible()
        browser.keep(page, "tick")

        page.goto("/assets/orders?view=overview")
        row = page.get_by_role("row").filter(has_text="sluicegate/acked").first
        expect(row).to_contain_text("25")
        browser.keep(page, "asset")
        page.get_by_text("Plots").click()
        expect(page.get_by_text("dagster/row_count")).to_be_visible()
        expect(page.locator("canvas").first).to_be_visible()
        browser.keep(page, "plots")

        page.goto("/assets/orders?view=checks")
        expect(page.get_by_text("queue_depth").first).to_be_visible()
        expect(page.get_by_text("Messages ready in 'orders': 0; at most 100 pass.").first).to_be_visible()
        browser.keep(page, "check")

        page.goto("/assets/orders?view=lineage")
        expect(page.get_by_text("waiting_orders").first).to_be_visible()
        browser.keep(page, "lineage")
