"""The examples in the docstrings are complete `Definitions` that load."""

from __future__ import annotations

import inspect
import textwrap

import dagster as dg
import pytest

from dagster_sluicegate import (
    RedisQueueResource,
    build_dead_letter_check,
    build_queue_age_check,
    build_queue_check_sensor,
    build_queue_depth_check,
    build_queue_depth_sensor,
    build_queue_drain_asset,
    build_queue_gates_sensor,
    build_queue_observation_sensor,
    build_queue_source_asset,
)

pytestmark = pytest.mark.dagster


@pytest.mark.parametrize(
    "documented",
    [
        RedisQueueResource,
        build_dead_letter_check,
        build_queue_age_check,
        build_queue_check_sensor,
        build_queue_depth_check,
        build_queue_depth_sensor,
        build_queue_drain_asset,
        build_queue_gates_sensor,
        build_queue_observation_sensor,
        build_queue_source_asset,
    ],
)
def test_the_example_loads(documented: object) -> None:
    text = inspect.getdoc(documented) or ""
    code = textwrap.dedent(text.partition(".. code-block:: python\n")[2])
    names: dict[str, object] = {"__name__": "example"}
    exec(compile(code, "docstring", "exec"), names)  # noqa: S102
    defs = names["defs"]
    assert isinstance(defs, dg.Definitions)
    dg.Definitions.validate_loadable(defs)
    assert defs.resolve_asset_graph().get_all_asset_keys()
