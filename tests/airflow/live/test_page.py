"""The page of the queues, as a person finds it in Airflow's own pages."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import FrameLocator, Page, expect

from sluicegate import RedisMessageQueue
from tests.airflow.live.deployment import LiveDeployment
from tests.support.browser import SCREENSHOTS, running

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(600)]

_WAIT_MS = 30_000


def frame_of(page: Page) -> FrameLocator:
    """Return the frame in which Airflow shows what a plugin mounts."""
    return page.frame_locator("iframe[src*='/sluicegate/']")


def keep(page: Page, name: str) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"airflow-{name}.png")


def test_a_task_leads_to_its_queue_whose_page_acts(
    deployment: LiveDeployment, queue: RedisMessageQueue, tmp_path: Path
) -> None:
    deployment.ready("gate")
    (tmp_path / "out").mkdir()
    run = deployment.trigger("gate", "by+page", queue=queue.name, folder=str(tmp_path / "out"), count=5)
    deployment.wait_for_run("gate", run)
    site = f"http://127.0.0.1:{deployment.port}"

    links = deployment.get("/dags/gate/dagRuns/by%2Bpage/taskInstances/publish/links")
    address = f"{site}/sluicegate/connections/sluicegate_default/#queue={queue.name}"
    assert links["extra_links"] == {"Queue": address}

    with running() as browser:
        page = browser.new_page(base_url=site, viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(_WAIT_MS)
        expect.set_options(timeout=_WAIT_MS)

        page.goto("/dags/gate/runs/by%2Bpage/tasks/publish/details")
        expect(page.locator(f"a[href='{address}']")).to_have_text("Queue")
        page.locator("a[href$='/plugin/sluicegate-queue']").click()
        shown = frame_of(page)
        expect(shown.get_by_role("heading", name=queue.name)).to_be_visible()
        expect(shown.locator(".live")).to_have_attribute("data-state", "live")
        keep(page, "task")

        shown.locator("[data-action=pause]").click()
        expect(shown.locator("[data-action=pause]")).to_have_text("Resume")
        assert queue.depth().paused
        shown.locator("[data-action=pause]").click()
        expect(shown.locator("[data-action=pause]")).to_have_text("Pause")
        assert not queue.depth().paused

        page.goto("/plugin/sluicegate-queues")
        expect(frame_of(page).get_by_role("link", name=queue.name)).to_be_visible()
        keep(page, "queues")
