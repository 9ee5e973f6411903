"""Config and resources that `process` takes by its parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from dagster_sluicegate import QueueDrainContext, RedisQueueResource, build_queue_drain_op
from sluicegate import Message, RedisMessageQueue
from sluicegate.errors import ConfigurationError
from tests.dagster.drains import Storage, drain_asset, fill, numbers

if TYPE_CHECKING:
    import pandas as pd

pytestmark = pytest.mark.dagster


class Settings(dg.Config):
    factor: int = 10


class Warehouse(dg.ConfigurableResource):  # type: ignore[type-arg]
    name: str = "main"


def multiply(
    messages: list[Message],
    ctx: QueueDrainContext,
    config: Settings,
    warehouse: Warehouse,
    catalogue: dg.ResourceParam[dict[str, int]],
    *,
    queue: RedisQueueResource,
) -> list[Any]:
    """Use everything that a step can give."""
    assert ctx.op.resources.catalogue == catalogue
    return [warehouse.name, queue.queue_name, *[n * config.factor + catalogue["more"] for n in numbers(messages)]]


def resources_of(resource: RedisQueueResource, storage: Storage) -> dict[str, Any]:
    return {"queue": resource, "io_manager": storage, "warehouse": Warehouse(name="north"), "catalogue": {"more": 1}}


def test_an_asset_gets_its_config_and_resources(queue: RedisMessageQueue, resource: RedisQueueResource) -> None:
    storage = Storage()
    asset = drain_asset(multiply, required_resource_keys={"catalogue"})
    resources = resources_of(resource, storage)
    config = {"ops": {"drained": {"config": {"factor": 100}}}}
    fill(queue, 2)
    dg.materialize([asset], resources=resources, run_config=config)
    fill(queue, 1)
    dg.materialize([asset], resources=resources)

    assert storage.stored == [[["north", queue.name, 1, 101]], [["north", queue.name, 1]]]
    assert asset.required_resource_keys == {"queue", "warehouse", "catalogue", "io_manager"}


@pytest.mark.parametrize("form", ["asset", "op"])
def test_a_test_may_give_them_directly(queue: RedisMessageQueue, resource: RedisQueueResource, form: str) -> None:
    given = {"queue": resource, "warehouse": Warehouse(), "catalogue": {"more": 2}, "config": Settings(factor=3)}
    fill(queue, 2)
    if form == "asset":
        (result,) = drain_asset(multiply)(dg.build_asset_context(), **given)  # type: ignore[misc]
    else:
        op = build_queue_drain_op(name="drain_orders", process=multiply)
        (result,) = op(dg.build_op_context(), **given)  # type: ignore[misc]

    assert result.value == [["main", queue.name, 2, 5]]
    assert queue.stats().acked == 2


def test_resources_that_are_read_from_the_context_need_only_a_key(
    queue: RedisMessageQueue, resource: RedisQueueResource
) -> None:
    def process(messages: list[Message], ctx: QueueDrainContext) -> int:
        more: int = ctx.asset.resources.catalogue["more"]
        return more

    fill(queue, 1)
    asset = drain_asset(process, required_resource_keys={"catalogue"})
    (result,) = asset(dg.build_asset_context(resources={"queue": resource, "catalogue": {"more": 5}}))  # type: ignore[misc]
    assert result.value == [5]


def test_an_annotation_for_type_checkers_only_takes_nothing_from_the_others(
    queue: RedisMessageQueue, resource: RedisQueueResource
) -> None:
    def process(batch: pd.DataFrame, ctx: QueueDrainContext, warehouse: Warehouse) -> str:
        return f"{warehouse.name} {len(batch)}"

    fill(queue, 3)
    (result,) = drain_asset(process)(dg.build_asset_context(), queue=resource, warehouse=Warehouse())  # type: ignore[misc]
    assert result.value == ["main 3"]


def _config_under_another_name(messages: list[Message], settings: Settings) -> None: ...


def _config_without_a_class(messages: list[Message], config: dict[str, Any]) -> None: ...


def _context_behind_the_config(messages: list[Message], config: Settings, ctx: QueueDrainContext) -> None: ...


def _unknown(messages: list[Message], ctx: QueueDrainContext, warehouse: Warehouse, *, limit: int) -> None: ...


@pytest.mark.parametrize(
    ("process", "complaint"),
    [
        (
            _config_under_another_name,
            "the parameter 'settings' of process takes a config, so it must be named 'config'",
        ),
        (_config_without_a_class, "'config' of process must be annotated with a subclass of dagster.Config"),
        (_context_behind_the_config, "process takes 'ctx' after 'config'; write the batch first, the context next"),
        (_unknown, "process requires the keyword 'limit', which a drain cannot give.*may be a config"),
        (42, "process must be a function of a batch, not a int"),
    ],
)
def test_parameters_that_nobody_can_fill_are_refused(process: Callable[..., Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=f"drain asset 'drained': .*{complaint}"):
        drain_asset(process)
