"""Messages that the server does not accept: named with their position and refused at once, never sent again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate.errors import PayloadTooLargeError
from sluicegate.events import QueueEvent
from tests.support.servers import RedisServer

MakeQueue = Callable[..., RedisMessageQueue]
MB = 1024 * 1024
SETTINGS = ("proto-max-bulk-len", "client-query-buffer-limit")


@pytest.fixture(params=SETTINGS)
def setting(request: pytest.FixtureRequest, client: redis.Redis) -> Iterator[str]:
    """Yield a server that accepts a megabyte at most, by one of its two limits."""
    before = client.config_get(request.param)[request.param]
    client.config_set(request.param, MB)
    yield request.param
    client.config_set(request.param, before)


def limit_of(setting: str) -> int:
    return MB - 2 if setting == "client-query-buffer-limit" else MB


@pytest.mark.parametrize("size", [1_500_000, 40_000_000], ids=["written whole", "cut off in the middle"])
@pytest.mark.parametrize("warm", [True, False], ids=["warm", "fresh"])
def test_one_message_is_refused_at_once(make_queue: MakeQueue, setting: str, size: int, warm: bool) -> None:
    events: list[QueueEvent] = []
    queue = make_queue(on_event=events.append)
    if warm:
        queue.publish("warm")
    with pytest.raises(PayloadTooLargeError) as caught:
        queue.publish(b"x" * size)
    error, limit = caught.value, limit_of(setting)
    assert (error.position, error.size, error.limit) == (0, size + 3, limit)
    assert f"the message at position 0 has {size} bytes of payload" in str(error)
    assert f"accepts at most {limit} ({setting})" in str(error)
    assert "xxx" not in str(error)
    outcomes = [event.outcome.value for event in events]
    assert outcomes == ["success", "failure"] if warm else ["failure"], "without a retry"
    assert queue.publish("after") is True
    assert queue.depth().ready == 1 + warm


def test_a_message_among_a_thousand_is_named_and_nothing_of_its_call_stored(
    make_queue: MakeQueue, client: redis.Redis, setting: str
) -> None:
    queue = make_queue(get_deduplication_key=lambda payload: str(len(payload)))
    connections = client.info("stats")["total_connections_received"]
    payloads = [b"s" * (number + 1) for number in range(2000)]
    payloads[1500] = b"x" * 1_100_000
    with pytest.raises(PayloadTooLargeError, match=r"Nothing of its call of 1000 messages was stored") as caught:
        queue.publish_many(payloads)
    assert caught.value.position == 1500
    assert "1000 messages before these were handled" in caught.value.__notes__[0]
    assert client.info("stats")["total_connections_received"] - connections <= 4
    assert queue.depth().ready == 1000
    assert queue.publish(payloads[1400]) is True, "its key was not taken"


def test_headers_and_keys_count_as_part_of_the_message(make_queue: MakeQueue, setting: str) -> None:
    with pytest.raises(PayloadTooLargeError, match=r"has 2000 bytes of payload, 10480\d\d of headers") as caught:
        make_queue().publish(b"x" * 2000, headers={"bulk": "y" * 1_048_000})
    assert caught.value.position == 0
    with pytest.raises(PayloadTooLargeError, match=r"has 1000000 bytes of payload, 0 of headers and 60000 of dedup"):
        make_queue(get_deduplication_key=lambda _: "z" * 60_000).publish(b"x" * 1_000_000)


def test_what_fits_exactly_is_published(make_queue: MakeQueue, setting: str) -> None:
    queue = make_queue()
    assert queue.publish(b"x" * (limit_of(setting) - 3)) is True
    with pytest.raises(PayloadTooLargeError):
        queue.publish(b"x" * (limit_of(setting) - 2))


@pytest.mark.parametrize("rights", ["all", "no CONFIG"])
def test_over_a_network_and_without_the_right_to_ask(
    make_queue: MakeQueue, own_server: RedisServer, rights: str
) -> None:
    with own_server.client() as client:
        client.config_set("proto-max-bulk-len", MB)
        client.execute_command("ACL", "SETUSER", "worker", "on", ">pw", "~*", "+@all", "-config")
    url = own_server.url if rights == "all" else own_server.url.replace("//", "//worker:pw@")
    events: list[Any] = []
    queue = make_queue(url=url, on_event=events.append)
    for size in (1_500_000, 40_000_000):
        with pytest.raises(PayloadTooLargeError) as caught:
            queue.publish(b"x" * size)
        assert caught.value.limit == (MB if rights == "all" else 0)
    assert [event.outcome.value for event in events] == ["failure", "failure"]


def test_a_large_message_rides_out_an_outage(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue()
    queue.publish("warm")
    client.client_kill_filter(_type="normal", skipme=True)
    assert queue.publish(b"x" * 3_000_000) is True
    assert queue.depth().ready == 2
