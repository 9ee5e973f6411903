"""Options are checked when a queue is made, without I/O; what travels carries no secret."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import redis
import redis.asyncio

from sluicegate import QueueSpec, RedisGateway, RedisMessageQueue
from sluicegate.connection import Address
from sluicegate.errors import ConfigurationError

URL = "redis://127.0.0.1:1/0"


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
        ({"heartbeat_interval_seconds": 0}, "heartbeat_interval_seconds"),
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
        {"max_delivery_count": None},
        {"max_delivery_count": 1},
        {"message_wait_interval_seconds": 0},
        {"retry_budget_seconds": 0, "retry_initial_delay_seconds": 0, "retry_max_delay_seconds": 0},
    ],
)
def test_what_is_allowed(options: dict[str, Any]) -> None:
    assert RedisMessageQueue("orders", url=URL, **options).name == "orders"


@pytest.mark.parametrize("option", ["key_separator", "visibility_timeout", "max_deliveries"])
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
        (lambda: redis.RedisCluster.__new__(redis.RedisCluster), ConfigurationError, "cluster"),
        (lambda: "redis://h", TypeError, "must be a redis.Redis, not builtins.str"),
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


# ---------------------------------------------------------------------- what travels

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
    with pytest.raises(ConfigurationError, match="cannot travel"):
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
    for shown in (str(caught.value), repr(address), address.url, address.server, repr(queue), repr(queue._gateway)):
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
