"""A `defs.yaml` that cannot work is refused with the file, the field and what to do."""

from __future__ import annotations

import re

import pytest

from tests.dagster.component_projects import RESOURCE, refusal

pytestmark = pytest.mark.dagster

DRAIN = """
type: dagster_sluicegate.components.QueueDrainAssetComponent
attributes:
  asset: {key: orders}
  process: tests.dagster.component_handlers:process
"""
SENSOR = """
type: dagster_sluicegate.components.QueueDepthSensorComponent
attributes:
  name: orders_gate
  target: key:orders
  min_ready: 1000
"""


def refused(text: str, *words: str) -> None:
    """Check that the error names the file and each of these words."""
    error = refusal({"orders/defs.yaml": text, "orders/handler.py": "raise RuntimeError('broken')\n"})
    assert re.search(r"defs/orders\b", error)
    assert "defs.yaml" in error
    for word in words:
        assert word in error


@pytest.mark.parametrize(
    ("process", "words"),
    [
        ("tests.dagster.component_handlers:proces", ("component_handlers' has no function 'proces'",)),
        ("tests.dagster.component_handlers:NOT_A_FUNCTION", ("has no function 'NOT_A_FUNCTION'",)),
        ("no.such.module:process", ("cannot be imported (ModuleNotFoundError: No module named 'no')",)),
        (".handler:process", ("defs.orders.handler:process' cannot be imported (RuntimeError: broken)",)),
        ("process", ("process must be 'module:name', or '.module:name' in the folder of this file, not 'process'",)),
        ("'module:'", ("process must be 'module:name'",)),
    ],
)
def test_a_function_that_cannot_be_had(process: str, words: tuple[str, ...]) -> None:
    refused(DRAIN.replace("tests.dagster.component_handlers:process", process), "defs.yaml:4", "process", *words)


def test_a_handler_that_a_call_would_not_run() -> None:
    refused(DRAIN.replace(":process", ":late"), "process is a coroutine function")


def test_another_function_than_process_is_named_by_its_field() -> None:
    refused(DRAIN + "  combine: json:sum\n", "defs.yaml:5", "combine 'json:sum': module 'json' has no function 'sum'")
    refused(SENSOR + "  run_config_fn: json:x\n", "run_config_fn 'json:x': module 'json' has no function 'x'")


@pytest.mark.parametrize(
    ("attribute", "words"),
    [
        ("batch_size: lots", ("defs.yaml:5", "batch_size: Input should be a valid integer")),
        ("batch_size: [1]", ("defs.yaml:5", "batch_size")),
        ("batch_size: 0", ("drain asset 'orders': batch_size must be",)),
        ("batch_sise: 10", ("attributes.batch_sise", "defs.yaml:5", "Extra inputs are not permitted")),
        ("settle: sometimes", ("defs.yaml:5", "settle: Input should be 'after_yield' or 'per_batch'")),
        ("retry_policy: {max_retries: 2, delay: soon}", ("defs.yaml:5", "delay: Input should be a valid number")),
        ("op: {pol: redis}", ("attributes.op", "pol", "defs.yaml:5")),
    ],
)
def test_an_option_of_a_drain_that_cannot_work(attribute: str, words: tuple[str, ...]) -> None:
    refused(f"{DRAIN}  {attribute}\n", *words)


def test_a_missing_field() -> None:
    refused(DRAIN.replace("process: ", "combine: "), "attributes.process", "Field required")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("  target: key:orders\n", "", "sensor 'orders_gate': target is missing; give a selection of assets"),
        ("target:", "job: .jobs:j\n  target:", "cannot be imported"),
        ("target: key:orders", "job: json:nothing", "job 'json:nothing': the module has no such name"),
        ("target: key:orders", "job: json:loads", "job 'json:loads' is a function; name a job"),
        ("min_ready: 1000", "min_ready: 0", "sensor 'orders_gate': min_ready must be"),
        ("min_ready: 1000", "default_status: ON", "default_status"),
    ],
)
def test_an_option_of_a_sensor_that_cannot_work(old: str, new: str, words: str) -> None:
    refused(SENSOR.replace(old, new), words)


def test_a_sensor_has_one_target() -> None:
    text = SENSOR.replace("target:", "job: tests.dagster.component_handlers:drain_job\n  target:")
    refused(text, "sensor 'orders_gate': give target, a selection of assets, or job, not both")


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (
            "{severity: WARN}",
            "a check of 'orders_queue' has no bound; give one of max_ready, max_age_seconds, max_dead",
        ),
        ("{max_ready: 1, max_dead: 1}", "a check of 'orders_queue' has max_ready and max_dead; give one of"),
        ("{max_ready: 1, severity: BAD}", "severity: Input should be 'WARN' or 'ERROR'"),
    ],
)
def test_a_check_has_one_bound(check: str, words: str) -> None:
    text = """
type: dagster_sluicegate.components.QueueSourceAssetComponent
attributes:
  asset: {key: orders_queue}
  checks:
"""
    refused(f"{text}    - {check}\n", words)


def test_a_gate_of_many_is_named() -> None:
    gates = """
type: dagster_sluicegate.components.QueueGatesSensorComponent
attributes:
  name: shop_gates
  queues:
    - {target: key:orders, queue_name: orders, min_ready: 10}
    - {queue_name: returns, min_ready: 10}
"""
    refused(gates, "sensor 'shop_gates', gate of 'returns': target is missing")
    refused(
        gates.replace("{queue_name: returns, min_ready: 10}", "{target: key:x, min_ready: ten}"),
        "defs.yaml:6",
        "min_ready: Input",
    )


@pytest.mark.parametrize("url", ["redis://:s3cret@localhost:6379/0", "redis://localhost?password=s3cret"])
def test_a_url_with_a_password_as_plain_text(url: str) -> None:
    refused(
        RESOURCE.replace("url_env_var: REDIS_URL", f"url: {url}"),
        "url carries a password as plain text, which the UI would show; give url_env_var",
    )


def test_a_password_that_a_template_takes_out_of_the_environment_is_refused_and_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://:s3cret@localhost:6379/0")
    for attribute in ('url: "{{ env.REDIS_URL }}"', 'url_env_var: "{{ env.REDIS_URL }}"'):
        text = RESOURCE.replace("url_env_var: REDIS_URL", attribute)
        error = refusal({"queue/defs.yaml": text})
        assert "url_env_var" in error
        assert "s3cret" not in error


def test_a_value_of_the_environment_that_has_the_wrong_type_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCH_SIZE", "s3cret")
    error = refusal({"orders/defs.yaml": DRAIN + "  batch_size: '{{ env.BATCH_SIZE }}'\n"})
    assert "batch_size: Input should be a valid integer" in error
    assert "s3cret" not in error


@pytest.mark.parametrize(
    ("attribute", "words"),
    [
        ("resource_key: queue", "url_env_var is missing; name the environment variable that holds the URL"),
        ("url_env_var: REDIS_URL\n  url: redis://localhost", "give url_env_var or url, not both"),
        ("url_env_var: redis://localhost", "url_env_var must be the name of an environment variable"),
        ("url: http://localhost", "url"),
    ],
)
def test_a_resource_without_a_place_for_its_url(attribute: str, words: str) -> None:
    refused(RESOURCE.replace("url_env_var: REDIS_URL", attribute), words)


def test_an_option_of_the_queue_that_cannot_work() -> None:
    refused(RESOURCE + "  max_delivery_count: 0\n", "max_delivery_count must be")


def test_an_unknown_option_of_the_queue() -> None:
    refused(RESOURCE + "  visibility_timeout: 10\n", "attributes.visibility_timeout", "defs.yaml:5")
