"""With `page_url`, what Dagster records of a queue links to it on the web page; without, nothing does."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from dagster_sluicegate import (
    RedisQueueResource,
    build_queue_depth_check,
    build_queue_depth_sensor,
    build_queue_drain_asset,
    build_queue_publish_asset,
    build_queue_source_asset,
)
from dagster_sluicegate.places import page_link
from sluicegate.errors import ConfigurationError
from sluicegate.place import Place
from tests.support.axes import quick
from tests.support.snippets import snippet

pytestmark = pytest.mark.dagster

PAGE = "https://queues.example.com/page/"
LINK = f"{PAGE}#queue=orders"


def resource(url: str, page_url: str | None = PAGE) -> RedisQueueResource:
    return RedisQueueResource(url=url, queue_name="orders", page_url=page_url)


def links(result: dg.ExecuteInProcessResult) -> list[Any]:
    """Return the links of all materializations, observations and check evaluations of a run."""
    found = []
    for event in result.all_events:
        data: Any = event.event_specific_data
        owner = getattr(data, "materialization", None) or getattr(data, "asset_observation", None)
        if owner is not None or type(data).__name__ == "AssetCheckEvaluation":
            found.append((owner or data).metadata.get("sluicegate/page"))
    return found


def definitions() -> list[dg.AssetsDefinition]:
    return [
        build_queue_publish_asset(spec="published", produce=lambda: [{"id": 1}]),
        build_queue_drain_asset(spec="drained", process=lambda batch: None),
    ]


@pytest.mark.parametrize(
    ("place", "query"),
    [
        (Place("a b&c"), "queue=a+b%26c"),
        (Place("s", stream=True), "stream=s"),
        (Place("s", stream=True, group="g/1"), "stream=s&group=g%2F1"),
    ],
)
def test_a_link_names_the_place_as_the_page_does(place: Place, query: str) -> None:
    assert page_link(PAGE, place) == f"{PAGE}#{query}"
    assert page_link(f"{PAGE}#overview", place) == f"{PAGE}#{query}"


@pytest.mark.parametrize("page_url", quick([PAGE, None], PAGE))
def test_publishes_and_drains_link_to_the_page(url: str, page_url: str | None) -> None:
    for definition in definitions():
        done = dg.materialize([definition], resources={"queue": resource(url, page_url)})
        assert links(done) == [None if page_url is None else dg.MetadataValue.url(LINK)]


def test_observations_and_checks_link_to_the_page(url: str) -> None:
    source = build_queue_source_asset(spec="orders_queue", min_ready=1)
    check = build_queue_depth_check(asset="orders_queue", max_ready=3)
    chosen = dg.AssetSelection.assets("orders_queue")
    job = dg.define_asset_job("look", selection=chosen)
    checked = dg.define_asset_job("check", selection=dg.AssetSelection.checks(check))
    defs = dg.Definitions(
        assets=[source], asset_checks=[check], jobs=[job, checked], resources={"queue": resource(url)}
    )
    for name in ("look", "check"):
        found = links(defs.resolve_job_def(name).execute_in_process())
        assert found
        assert set(found) == {dg.MetadataValue.url(LINK)}, name


@pytest.mark.parametrize("page_url", quick([PAGE, None], PAGE))
def test_runs_that_a_sensor_requests_have_the_link_as_a_tag(url: str, page_url: str | None) -> None:
    @dg.job
    def work() -> None: ...

    sensor = build_queue_depth_sensor(name="gate", target=work, min_ready=1)
    given = resource(url, page_url)
    with given.get_queue() as queue:
        queue.publish({"id": 1})
    with dg.DagsterInstance.ephemeral() as instance:
        context = dg.build_sensor_context(instance=instance, resources={"queue": given})
        (request,) = sensor.evaluate_tick(context).run_requests or ()
    assert request.tags.get("sluicegate/page") == (None if page_url is None else LINK)


@pytest.mark.parametrize(
    ("page_url", "problem"),
    [
        ("queues.example.com", "page_url is no http:// or https:// URL"),
        ("https://user:s3cret@queues.example.com/", "page_url has a password"),
    ],
)
def test_a_page_that_no_browser_should_open_is_refused(url: str, page_url: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem) as caught:
        resource(url, page_url).get_resource_definition()
    assert "s3cret" not in str(caught.value)


def test_the_definitions_of_the_documentation_link_to_the_page(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", url)
    names: dict[str, Any] = {}
    exec(snippet("dagster-page-links"), names)  # noqa: S102
    done = names["defs"].resolve_implicit_global_asset_job_def().execute_in_process()
    assert links(done) == [dg.MetadataValue.url("https://queues.example.com/#queue=orders")] * 2
