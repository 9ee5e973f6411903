"""Options are checked when a queue is made, without I/O; what is serialized carries no secret."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import re
import threading
from typing import Any

import pytest
import redis
import redis.asyncio
import tenacity

import sluicegate.asyncio
from sluicegate import EventDrivenInterruptHandler, QueueSpec, RedisGateway, RedisMessageQueue
from sluicegate._redis.connection import Address
from sluicegate.config import QueueConfig
from sluicegate.core import policies
from sluicegate.core.rules import QueueRules
from sluicegate.errors import ConfigurationError, OptionTypeError
from sluicegate.options import OPTIONS as DECLARED
from sluicegate.options import QueueOptions

URL = "redis://127.0.0.1:1/0"


async def awaited(value: object) -> str:
    return str(value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"deduplication": True}, "deduplication=True needs get_deduplication_key"),
        ({"deduplication": False, "get_deduplication_key": "id"}, "deduplication=False contradicts"),
        ({"deduplication": 1, "get_deduplication_key": "id"}, "must be True, False or None"),
        ({"get_deduplication_key": "{id"}, "unpaired"),
        ({"deduplication_window_seconds": 0}, "deduplication_window_seconds must be a number above 0"),
        ({"deduplication_window_seconds": math.inf}, "deduplication_window_seconds"),
        ({"visibility_timeout_seconds": 0}, "visibility_timeout_seconds"),
        ({"visibility_timeout_seconds": "60"}, "visibility_timeout_seconds"),
        ({"visibility_timeout_seconds": True}, "visibility_timeout_seconds"),
        ({"visibility_timeout_seconds": math.nan}, "visibility_timeout_seconds"),
        ({"heartbeat_interval_seconds": -1}, "heartbeat_interval_seconds must be a number of 0 or more"),
        ({"heartbeat_interval_seconds": False}, "heartbeat_interval_seconds"),
        ({"heartbeat_interval_seconds": 150}, "less than half"),
        ({"heartbeat_interval_seconds": 30, "visibility_timeout_seconds": 60}, "less than half"),
        ({"max_delivery_count": 0}, "max_delivery_count"),
        ({"max_delivery_count": True}, "max_delivery_count"),
        ({"max_delivery_count": 2.0}, "max_delivery_count"),
        ({"max_delivery_count": 4001}, "max_delivery_count"),
        ({"message_wait_interval_seconds": -1}, "message_wait_interval_seconds"),
        ({"message_wait_interval_seconds": None}, "message_wait_interval_seconds"),
        ({"retry_budget_seconds": -1}, "retry_budget_seconds"),
        ({"retry_budget_seconds": math.nan}, "retry_budget_seconds"),
        ({"retry_initial_delay_seconds": -0.1}, "retry_initial_delay_seconds"),
        ({"retry_max_delay_seconds": -1}, "retry_max_delay_seconds"),
    ],
)
def test_an_option_that_cannot_work_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        RedisMessageQueue("orders", url=URL, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"deduplication": True, "get_deduplication_key": "id"},
        {"deduplication": False},
        {"heartbeat_interval_seconds": 149.9},
        {"heartbeat_interval_seconds": 0},
        {"max_delivery_count": None},
        {"max_delivery_count": 1},
        {"message_wait_interval_seconds": 0},
        {"retry_budget_seconds": 0, "retry_initial_delay_seconds": 0, "retry_max_delay_seconds": 0},
    ],
)
def test_what_is_allowed(options: dict[str, Any]) -> None:
    assert RedisMessageQueue("orders", url=URL, **options).name == "orders"


@pytest.mark.parametrize("option", ["visibility_timeout", "max_deliveries"])
def test_an_unknown_option_is_an_error(option: str) -> None:
    with pytest.raises(TypeError, match=option):
        RedisMessageQueue("orders", url=URL, **{option: 1})


@pytest.mark.parametrize("places", [{}, {"url": URL, "client": redis.Redis()}, {"url": URL, "gateway": 1}])
def test_exactly_one_place(places: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="exactly one of client, url and gateway"):
        RedisMessageQueue("orders", **places)


@pytest.mark.parametrize(
    ("unfit", "error", "text"),
    [
        (redis.asyncio.Redis, ConfigurationError, "asyncio"),
        (lambda: redis.Redis().pipeline(), ConfigurationError, "pipeline"),
        (lambda: redis.Sentinel([("127.0.0.1", 1)]), ConfigurationError, "master_for"),
        (lambda: redis.asyncio.RedisCluster(host="h"), ConfigurationError, "asyncio"),
        (lambda: "redis://h", TypeError, "must be a redis.Redis or redis.RedisCluster, not builtins.str"),
    ],
)
def test_unfit_clients_are_refused_with_a_reason(unfit: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        RedisMessageQueue("orders", client=unfit())


def test_a_single_connection_client_is_refused() -> None:
    client = redis.Redis()
    client.connection = object()  # as single_connection_client=True leaves it, which would connect here
    with pytest.raises(ConfigurationError, match="single_connection_client"):
        RedisMessageQueue("orders", client=client)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 10_001}, "limit"),
        ({"limit": True}, "limit"),
        ({"limit": 1.0}, "limit"),
        ({"lease_seconds": 0}, "lease_seconds"),
        ({"lease_seconds": math.inf}, "lease_seconds"),
        ({"wait_seconds": -1}, "wait_seconds"),
        ({"wait_seconds": math.nan}, "wait_seconds"),
        ({"retention_seconds": -1}, "retention_seconds"),
        ({"retention_seconds": math.inf}, "retention_seconds"),
        ({"lease_id": ""}, "lease_id is empty"),
        ({"take_over_after_seconds": 0}, "need a lease_id"),
        ({"remember_empty": True}, "need a lease_id"),
        ({"lease_id": "l", "take_over_after_seconds": -1}, "take_over_after_seconds"),
        ({"on_batch_error": "bury"}, "on_batch_error"),
    ],
)
def test_a_claim_that_cannot_work_is_refused_before_redis_is_asked(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        RedisMessageQueue("orders", url=URL).claim(**arguments)


def test_peek_and_publish_chunks_check_their_arguments() -> None:
    queue = RedisMessageQueue("orders", url=URL)
    with pytest.raises(ConfigurationError, match="state must be"):
        queue.peek(state="lost")  # type: ignore[call-overload]
    with pytest.raises(ConfigurationError, match="count"):
        queue.peek(0)
    for size in (0, 1001):
        with pytest.raises(ConfigurationError, match="batch_size"):
            list(queue.publish_chunks([1], batch_size=size))


# ---------------------------------------------------------------------- options by themselves, and together

AT_MOST_ONCE: dict[str, Any] = {"visibility_timeout_seconds": None, "max_delivery_count": None}
DROPPING: dict[str, Any] = {
    "pending_overload_policy": "drop_oldest",
    "max_pending_length": 5,
    "max_delivery_count": None,
}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"visibility_timeout_seconds": None}, "max_delivery_count=10 times; set max_delivery_count=None too"),
        ({**AT_MOST_ONCE, "heartbeat_interval_seconds": 1}, "heartbeat_interval_seconds=1 needs a visibility timeout"),
        ({**AT_MOST_ONCE, "max_lease_seconds": 1}, "max_lease_seconds=1 needs a visibility timeout"),
        ({**AT_MOST_ONCE, "on_error": "bury"}, "on_error='bury' needs a visibility timeout"),
        ({"visibility_timeout_seconds": 4e9}, "at most 100 years"),
        (
            {"on_heartbeat_failure": print, "heartbeat_interval_seconds": 0},
            "needs a heartbeat, and with heartbeat_interval_seconds=0 there is none",
        ),
        (
            {**AT_MOST_ONCE, "on_heartbeat_failure": print},
            "needs a heartbeat, and with visibility_timeout_seconds=None there is none",
        ),
        ({"on_heartbeat_failure": 1, "heartbeat_interval_seconds": 1}, "on_heartbeat_failure must be None or a call"),
        ({"max_lease_seconds": 299.9}, "max_lease_seconds=299.9 must not be less than visibility_timeout_seconds=300"),
        ({"max_lease_seconds": 0}, "max_lease_seconds must be a number above 0"),
        ({"max_lease_seconds": "900"}, "max_lease_seconds must be a number above 0"),
        ({"on_error": "ignore"}, "on_error must be 'retry', 'bury' or 'discard', not 'ignore'"),
        ({"on_error": None}, "on_error must be"),
        ({"retry_backoff": 5}, "retry_backoff must be one of tenacity's wait strategies"),
        ({"retry_backoff": tenacity.wait_fixed}, "retry_backoff must be"),
        ({"deduplication_policy": "until_acked"}, "deduplication_policy='until_acked' needs get_deduplication_key"),
        ({"deduplication_policy": "for_ever", "get_deduplication_key": "id"}, "must be 'window' or 'until_acked'"),
        ({"deduplication_policy": ["window"]}, "deduplication_policy must be"),
        ({"max_pending_length": 0}, "max_pending_length must be None (no bound) or an int of 1 or more"),
        ({"max_pending_length": True}, "max_pending_length must be"),
        ({"max_pending_length": 10.0}, "max_pending_length must be"),
        ({"max_pending_length": 2**53 + 1}, "max_pending_length must be"),
        ({"pending_overload_policy": "wait", "max_pending_length": 1}, "'raise', 'block' or 'drop_oldest', not 'wait'"),
        ({"pending_overload_policy": "block"}, "'block' needs max_pending_length"),
        ({"pending_overload_policy": "drop_oldest"}, "'drop_oldest' needs max_pending_length"),
        ({**DROPPING, "max_delivery_count": 10}, "max_delivery_count=10: what should become a dead letter"),
        ({**DROPPING, "get_deduplication_key": "id"}, "'drop_oldest' cannot be combined with deduplication"),
        ({"pending_overload_block_timeout_seconds": -1}, "pending_overload_block_timeout_seconds must be"),
        ({"pending_overload_block_timeout_seconds": math.inf}, "pending_overload_block_timeout_seconds must be"),
        ({"enable_completed_queue": 1}, "enable_completed_queue must be True or False, not 1"),
        ({"enable_failed_queue": None}, "enable_failed_queue must be True or False"),
        ({"enable_completed_queue": True, "max_completed_length": 0}, "max_completed_length must be None (no bound)"),
        ({"enable_failed_queue": True, "max_failed_length": -1}, "max_failed_length must be None (no bound)"),
        ({"max_completed_length": 5}, "max_completed_length=5 has no effect without enable_completed_queue=True"),
        ({"max_failed_length": None}, "max_failed_length=None has no effect without enable_failed_queue=True"),
        ({"max_dead_length": 0}, "max_dead_length must be None (no bound)"),
        ({"strict_payload_types": "yes"}, "strict_payload_types must be True or False"),
        ({"sort_keys": 1}, "sort_keys must be True or False"),
        ({"json_default": "ISO"}, 'json_default must be None, "iso"'),
        ({"json_default": 1}, 'json_default must be None, "iso"'),
        ({"json_default": awaited}, "json_default must be a plain function"),
        ({"json_default": "iso", "strict_payload_types": True}, "json_default has no effect with strict_payload_types"),
        ({"strict_envelope_decoding": 0}, "strict_envelope_decoding must be True or False"),
        ({"max_payload_bytes": 0}, "max_payload_bytes must be None (no bound)"),
        ({"max_payload_depth": 1.5}, "max_payload_depth must be None (no bound)"),
        ({"interrupt": lambda: True}, "interrupt must be a GracefulInterruptHandler"),
        ({"interrupt": EventDrivenInterruptHandler}, "interrupt must be"),
        ({"on_event": "print"}, "on_event must be None or a callable, not 'print'"),
    ],
)
def test_options_that_cannot_work_say_which_and_why(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(text)):
        QueueConfig(**options)


@pytest.mark.parametrize(
    "options",
    [
        AT_MOST_ONCE,
        {**AT_MOST_ONCE, "on_error": "discard", "enable_failed_queue": True},
        {**AT_MOST_ONCE, "heartbeat_interval_seconds": 0},
        DROPPING,
        {"pending_overload_policy": "block", "max_pending_length": 1, "pending_overload_block_timeout_seconds": 0},
        {"max_pending_length": 1, "get_deduplication_key": "id"},
        {"deduplication_policy": "until_acked", "get_deduplication_key": "id"},
        {"max_lease_seconds": 300},
        {"heartbeat_interval_seconds": 149, "on_heartbeat_failure": print},
        {"on_heartbeat_failure": print},
        {"enable_completed_queue": True, "max_completed_length": None},
        {"enable_failed_queue": True, "max_failed_length": 1, "max_dead_length": 1},
        {"retry_backoff": tenacity.wait_fixed(3) + tenacity.wait_random(0, 1)},
        {"retry_backoff": lambda state: state.attempt_number},
        {"strict_payload_types": True, "max_payload_bytes": 1, "max_payload_depth": 1},
        {"interrupt": EventDrivenInterruptHandler(threading.Event()), "on_event": print},
    ],
)
def test_options_that_work_are_kept_as_given(options: dict[str, Any]) -> None:
    config = QueueConfig(**options)
    assert {name: getattr(config, name) for name in options} == options


def test_the_options_that_are_passed_on_are_those_of_a_queue() -> None:
    taken = {field.name: field.type for field in dataclasses.fields(QueueConfig)}
    passed = {name: hint.__forward_arg__ for name, hint in QueueOptions.__annotations__.items()}
    assert passed == taken


def test_terms_and_guards_are_what_the_options_say() -> None:
    assert QueueConfig().rules == QueueRules(max_delivery_count=10, stale_seconds=300)
    assert not QueueConfig().limits
    config = QueueConfig(
        **AT_MOST_ONCE, enable_completed_queue=True, max_completed_length=None, max_payload_bytes=7, max_payload_depth=3
    )
    assert config.at_most_once
    assert config.rules == QueueRules(max_delivery_count=0, completed_cap=0)
    assert (config.limits.max_payload_bytes, config.limits.max_payload_depth) == (7, 3)
    config = QueueConfig(
        max_lease_seconds=900,
        max_dead_length=4,
        enable_failed_queue=True,
        max_failed_length=5,
        strict_envelope_decoding=True,
        strict_payload_types=True,
    )
    assert not config.at_most_once
    assert config.rules == QueueRules(10, 900, max_dead_length=4, failed_cap=5, strict=True, stale_seconds=300)
    assert config.limits.strict_payload_types


def test_the_default_backoff_grows_from_one_second_to_three_hundred() -> None:
    waits = [policies.backoff_seconds(QueueConfig().backoff, count) for count in (1, 2, 5, 40)]
    for wait, low in zip(waits, (1, 2, 16, 300), strict=True):
        assert low <= wait <= min(low + 1, 300)
    assert QueueConfig(retry_backoff=tenacity.wait_fixed(7)).backoff(None) == 7  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("key_separator", "any name works"),
        ("dead_letter_queue", "redrive()"),
        ("redis_client", "client="),
        ("message_deduplication_log_ttl_seconds", "its name is deduplication_window_seconds"),
        ("message_visibility_timeout_seconds", "its name is visibility_timeout_seconds"),
        ("retry_strategy", "retry_budget_seconds"),
    ],
)
def test_options_of_the_other_library_are_refused_with_what_to_use(option: str, text: str) -> None:
    for make in (RedisMessageQueue, sluicegate.asyncio.RedisMessageQueue):
        with pytest.raises(ConfigurationError, match=re.escape(text)) as caught:
            make("orders", url=URL, **{option: SECRET})
        assert str(caught.value).startswith(f"RedisMessageQueue has no option {option}; ")
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("message_deduplication_log_ttl_seconds", "RedisMessageQueue(deduplication_window_seconds=...)"),
        ("message_visibility_timeout_seconds", "RedisMessageQueue(visibility_timeout_seconds=...)"),
        ("message_wait_interval_seconds", "RedisMessageQueue(message_wait_interval_seconds=...)"),
        ("max_delivery_count", "RedisMessageQueue(max_delivery_count=...)"),
        ("max_pending_length", "RedisMessageQueue(max_pending_length=...)"),
        ("pending_overload_policy", "RedisMessageQueue(pending_overload_policy=...)"),
        ("pending_overload_block_timeout_seconds", "RedisMessageQueue(pending_overload_block_timeout_seconds=...)"),
        ("interrupt", "RedisMessageQueue(interrupt=...)"),
        ("on_event", "RedisMessageQueue(on_event=...)"),
        ("dead_letter_queue", "redrive()"),
        ("retry_strategy", "retry_budget_seconds"),
        ("client", "its name is redis_client"),
    ],
)
def test_what_a_gateway_does_not_take_is_refused_with_where_it_goes(option: str, text: str) -> None:
    for make in (RedisGateway, sluicegate.asyncio.RedisGateway):
        with pytest.raises(ConfigurationError, match=re.escape(text)) as caught:
            make(url=URL, **{option: SECRET})  # type: ignore[arg-type]
        assert str(caught.value).startswith(f"RedisGateway has no option {option}; ")
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize("make", [RedisMessageQueue, sluicegate.asyncio.RedisMessageQueue])
def test_other_unknown_options_name_the_nearest_that_there_is(make: Any) -> None:
    with pytest.raises(OptionTypeError, match="'visibility_timeout'; did you mean visibility_timeout_seconds"):
        make("orders", url=URL, visibility_timeout=1)
    with pytest.raises(OptionTypeError, match=r"(?m)RedisMessageQueue\(\) got an unexpected keyword argument 'zzz'$"):
        make("orders", url=URL, zzz=1)


@pytest.mark.parametrize("make", [RedisGateway, sluicegate.asyncio.RedisGateway])
def test_other_unknown_options_of_a_gateway_name_the_nearest_that_there_is(make: Any) -> None:
    with pytest.raises(OptionTypeError, match=r"RedisGateway\(\) .* 'retry_budget'; did you mean retry_budget_seconds"):
        make(url=URL, retry_budget=1)


@pytest.mark.parametrize("module", [sluicegate, sluicegate.asyncio])
def test_the_signatures_show_the_options_that_there_are_and_nothing_else(module: Any) -> None:
    taken = inspect.signature(module.RedisMessageQueue).parameters
    assert list(taken)[:4] == ["name", "client", "url", "gateway"]
    assert set(taken) == {
        "name",
        "client",
        "url",
        "gateway",
        *(field.name for field in dataclasses.fields(QueueConfig)),
    }
    gateway = inspect.signature(module.RedisGateway).parameters
    assert [name for name in gateway if not name.startswith("retry_")] == ["redis_client", "url"]


# ---------------------------------------------------------------------- what is serialized

# Each option that is serialized, with a value that is not its default.
TRAVELLING: dict[str, Any] = {
    "deduplication_policy": "until_acked",
    "deduplication_window_seconds": 60,
    "visibility_timeout_seconds": 30,
    "heartbeat_interval_seconds": 7,
    "max_delivery_count": 3,
    "max_lease_seconds": 90,
    "on_error": "bury",
    "max_pending_length": 9,
    "pending_overload_policy": "block",
    "pending_overload_block_timeout_seconds": 2,
    "enable_completed_queue": True,
    "max_completed_length": None,
    "enable_failed_queue": True,
    "max_failed_length": 8,
    "max_dead_length": 7,
    "strict_payload_types": True,
    "max_payload_bytes": 1000,
    "max_payload_depth": 5,
    "sort_keys": True,
    "strict_envelope_decoding": True,
    "require_noeviction": True,
    "message_wait_interval_seconds": 1,
    "retry_budget_seconds": 9,
    "retry_initial_delay_seconds": 0.5,
    "retry_max_delay_seconds": 2,
    "get_deduplication_key": "{tenant}:{id}",
}
STAYING: dict[str, Any] = {
    "on_heartbeat_failure": print,
    "interrupt": EventDrivenInterruptHandler(threading.Event()),
    "on_event": print,
    "deduplication": True,
}


def test_every_option_either_travels_or_stays() -> None:
    every = {field.name for field in dataclasses.fields(QueueConfig)}
    assert every == {*TRAVELLING, *STAYING, "retry_backoff", "json_default"}
    carried = {name for name, option in DECLARED.items() if option.in_spec == "yes"}
    assert set(TRAVELLING) - {"get_deduplication_key"} == carried
    partly = {name for name, option in DECLARED.items() if option.in_spec == "partly"}
    assert partly == {"get_deduplication_key", "retry_backoff", "json_default"}


def travel(**options: Any) -> QueueConfig:
    """Return the options of the queue that is made from the spec of one with these."""
    spec = RedisMessageQueue("orders", url=URL, **options).spec()
    return RedisMessageQueue.from_spec(QueueSpec.from_json(spec.to_json())).session.config


def test_every_option_that_travels_arrives() -> None:
    assert travel(**TRAVELLING, **STAYING) == QueueConfig(**TRAVELLING)


def test_iso_travels_and_a_function_stays() -> None:
    assert travel(json_default="iso") == QueueConfig(json_default="iso")
    assert travel(json_default=str) == QueueConfig()


def test_a_policy_stays_behind_with_its_callable_key() -> None:
    assert travel(get_deduplication_key=str, deduplication_policy="until_acked") == QueueConfig()


@pytest.mark.parametrize(
    "backoff",
    [
        tenacity.wait_exponential(multiplier=2, max=30, min=1, exp_base=3),
        tenacity.wait_exponential_jitter(max=30, jitter=5),
        tenacity.wait_random_exponential(max=12.5),
        tenacity.wait_fixed(4),
        tenacity.wait_incrementing(start=1, increment=2, max=9),
        tenacity.wait_exponential(),
    ],
    ids=lambda backoff: type(backoff).__name__,
)
def test_a_usual_backoff_travels(backoff: Any) -> None:
    arrived = travel(retry_backoff=backoff).backoff
    assert type(arrived) is type(backoff)
    assert vars(arrived) == vars(backoff)


@pytest.mark.parametrize("backoff", [lambda _: 1.0, tenacity.wait_random(0, 1) + tenacity.wait_fixed(1)])
def test_any_other_backoff_stays_behind_with_a_warning(backoff: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert travel(retry_backoff=backoff) == QueueConfig()
    assert "cannot be serialized" in caplog.text


@pytest.mark.parametrize("described", [{"kind": "cron"}, {}, {"kind": "fixed", "weight": 1}, {"kind": ["fixed"]}])
def test_a_spec_with_another_backoff_is_refused(described: Any) -> None:
    with pytest.raises(ConfigurationError, match="backoff"):
        RedisMessageQueue.from_spec(QueueSpec("orders", URL, {"retry_backoff": described}))


OPTIONS: dict[str, Any] = {
    "get_deduplication_key": ["tenant", "id"],
    "deduplication_window_seconds": 60,
    "visibility_timeout_seconds": 30,
    "heartbeat_interval_seconds": 7,
    "max_delivery_count": None,
    "message_wait_interval_seconds": 1,
    "retry_budget_seconds": 9,
    "retry_initial_delay_seconds": 0.5,
    "retry_max_delay_seconds": 2,
}


def test_a_spec_round_trips_through_json() -> None:
    queue = RedisMessageQueue("or{d}ers", url="redis://ann@db:7/2?password_env=SG_PASSWORD", **OPTIONS)
    spec = queue.spec()
    read = QueueSpec.from_json(spec.to_json())
    assert read == spec
    assert json.loads(spec.to_json()) == spec.to_dict() == {
        "name": "or{d}ers", "url": "redis://ann@db:7/2?password_env=SG_PASSWORD", "options": OPTIONS,
    }  # fmt: skip
    assert RedisMessageQueue.from_spec(read).spec() == spec


def test_defaults_do_not_travel() -> None:
    assert RedisMessageQueue("orders", url=URL).spec().options == {}


def test_a_callable_stays_behind_and_the_far_side_does_not_publish() -> None:
    spec = RedisMessageQueue("orders", url=URL, get_deduplication_key=str).spec()
    assert spec.options == {"publishes": False}
    with pytest.raises(ConfigurationError, match="cannot be serialized"):
        RedisMessageQueue.from_spec(QueueSpec.from_json(spec.to_json())).publish("x")


@pytest.mark.parametrize(
    "values",
    [
        {"name": "q", "url": URL},
        {"name": "q", "url": URL, "options": {}, "more": 1},
        {"name": "q", "url": URL, "options": {"client": 1}},
    ],
)
def test_a_spec_with_too_little_or_too_much_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="queue spec"):
        QueueSpec.from_dict(values)


def test_a_queue_that_cannot_travel_says_why() -> None:
    with pytest.raises(ConfigurationError, match="made from a client"):
        RedisMessageQueue("orders", client=redis.Redis()).spec()
    gateway = RedisGateway(url="unix:///run/redis.sock?db=3")
    assert RedisMessageQueue("orders", gateway=gateway).spec().url == "unix:///run/redis.sock?db=3"


SECRET = "s3cr"
WITH_SECRET = [
    f"redis://:{SECRET}@db:7/0",
    f"redis://ann:{SECRET}@db:7/0",
    f"rediss://db:7/0?password={SECRET}",
    f"unix://:{SECRET}@/run/redis.sock",
]


@pytest.mark.parametrize("url", WITH_SECRET)
def test_a_secret_in_a_url_never_shows_and_never_travels(url: str) -> None:
    queue = RedisMessageQueue("orders", url=url)
    with pytest.raises(ConfigurationError, match="password_env") as caught:
        queue.spec()
    address = Address.parse(url)
    assert address.password == SECRET
    for shown in (
        str(caught.value),
        repr(address),
        address.url,
        address.server,
        repr(queue),
        repr(queue.session.runner.gateway),
    ):
        assert SECRET not in shown


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{SECRET}/x@db:7/0",
        f"redis://:123/{SECRET}@db:7/0",
        f"redis://:{SECRET}#x@db:7/0",
        f"redis://:{SECRET}?x@db:7/0",
        f"redis://db:{SECRET}/0",
        f"rediss://db:7/0?ssl_password={SECRET}",
        f"http://:{SECRET}@db/0",
        f"redis://[{SECRET}/0",
    ],
)
def test_a_url_with_a_secret_out_of_place_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        RedisMessageQueue("orders", url=url)
    assert SECRET not in str(caught.value)


def test_the_password_comes_from_the_environment_at_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    address = Address.parse("redis://ann@db:7/2?password_env=SG_PASSWORD&client_name=gate")
    monkeypatch.delenv("SG_PASSWORD", raising=False)
    with pytest.raises(ConfigurationError, match="SG_PASSWORD, which is not set"):
        address.client()
    monkeypatch.setenv("SG_PASSWORD", SECRET)
    options = address.client().connection_pool.connection_kwargs
    assert (options["username"], options["password"], options["db"]) == ("ann", SECRET, 2)
    assert (options["host"], options["port"], options["client_name"]) == ("db", 7, "gate")


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("redis://db:7/0", "db:7"),
        ("redis://db", "db:6379"),
        ("rediss://ann:x@db", "db:6379"),
        ("unix:///run/a@b.sock", "unix:/run/a@b.sock"),
        ("embedded:///data/here", "embedded:/data/here"),
    ],
)
def test_a_server_in_words(url: str, server: str) -> None:
    assert Address.parse(url).server == server


def test_a_url_option_that_does_not_work_is_named() -> None:
    with pytest.raises(ConfigurationError, match="option that does not work"):
        Address.parse("redis://db:7/0?socket_timeout=soon").client()
    with pytest.raises(TypeError, match="url must be a str"):
        Address.parse(b"redis://db")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {"visibility_timeout_seconds": "300"},
        {"visibility_timeout_seconds": True},
        {"message_wait_interval_seconds": None},
        {"max_delivery_count": 1.5},
        {"max_pending_length": "1000"},
        {"max_payload_bytes": True},
        {"strict_payload_types": 1},
        {"enable_failed_queue": "yes"},
        {"on_error": None},
        {"on_event": "print"},
        {"interrupt": object()},
        {"retry_backoff": 3},
        {"deduplication": "on"},
        {"get_deduplication_key": 7},
        {"url": 7},
        {"client": object()},
    ],
    ids=repr,
)
def test_an_option_of_the_wrong_type_is_a_type_error_too(options: dict[str, Any]) -> None:
    place = {} if {"url", "client"} & options.keys() else {"url": URL}
    with pytest.raises(ConfigurationError) as caught:
        RedisMessageQueue("orders", **place, **options)
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "options",
    [{"visibility_timeout_seconds": -1}, {"max_pending_length": 0}, {"on_error": "explode"}, {"url": "ftp://x"}],
    ids=repr,
)
def test_a_value_of_the_right_type_is_none(options: dict[str, Any]) -> None:
    place = {} if "url" in options else {"url": URL}
    with pytest.raises(ConfigurationError) as caught:
        RedisMessageQueue("orders", **place, **options)
    assert not isinstance(caught.value, TypeError)


@pytest.mark.parametrize("name", [None, 7, b"orders"])
def test_a_name_of_the_wrong_type_is_both(name: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        RedisMessageQueue(name, url=URL)
    assert isinstance(caught.value, TypeError)
