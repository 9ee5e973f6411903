"""What is on a Redis is found by SCAN, and the state of many places is read in one write."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from sluicegate import RedisGateway, RedisMessageQueue, RedisStreamQueue
from sluicegate.errors import GroupNotFoundError, RedisAccessError, RedisUnavailableError, WrongKeyTypeError
from sluicegate.jobs import RedisJobQueue
from sluicegate.place import Place
from sluicegate.survey import FoundPlace, PlaceDirectory, Snapshot, StreamSnapshot, find_places, read_snapshots
from tests.support import state
from tests.support.servers import RedisServer

ODD = "a:{b}%\n"


@pytest.fixture
def gateway(server: RedisServer, bare_client: redis.Redis) -> Iterator[RedisGateway]:
    """Yield a gateway to an empty server."""
    made = RedisGateway(url=server.url)
    yield made
    made.close()


def test_every_kind_of_place_is_found(gateway: RedisGateway, bare_client: redis.Redis) -> None:
    client = bare_client
    RedisMessageQueue("orders", client=client, get_deduplication_key=str).publish_many(["a", "b:counters"])
    RedisMessageQueue(ODD, client=client).pause()
    RedisJobQueue("thumbnails", client=client).enqueue({"n": 1})
    stream = RedisStreamQueue("orders", client=client, get_deduplication_key=str)
    stream.publish("x:stream")
    stream.group("billing", start="end").create("end")
    with stream.group(ODD, start="beginning").claim(1):
        pass
    with stream.replay(from_id="0-1") as replay:
        replay.claim(1).ack()
        client.lpush("sluicegate:{pushed}:pending", "by hand")
        client.xadd("sluicegate:{foreign}:stream", {"payload": "x"})
        client.hset("sluicegate:{broken%}:counters", "published", 1)
        client.hset("sluicegate:orders:counters", "published", 1)
        client.hset("other:{orders}:counters", "published", 1)
        client.set("sluicegate:{text}:counters", "not a hash")
        found = find_places(gateway)
    assert found == [
        FoundPlace(Place(ODD), "queue"),
        FoundPlace(Place("foreign", stream=True), "stream"),
        FoundPlace(Place("orders"), "queue"),
        FoundPlace(Place("orders", stream=True), "stream"),
        FoundPlace(Place("orders", stream=True, group=ODD), "group"),
        FoundPlace(Place("orders", stream=True, group="billing"), "group"),
        FoundPlace(Place("pushed"), "queue"),
        FoundPlace(Place("thumbnails"), "jobs"),
    ]


def test_an_empty_redis_has_no_places(gateway: RedisGateway) -> None:
    assert find_places(gateway) == []


def test_places_are_found_among_many_keys(gateway: RedisGateway, bare_client: redis.Redis) -> None:
    names = [f"queue-{number}" for number in range(50)]
    for name in names:
        RedisMessageQueue(name, client=bare_client).publish("x")
    bare_client.mset({f"other-{number}": "" for number in range(30_000)})
    assert sorted(found.place.name for found in find_places(gateway)) == sorted(names)


def test_a_snapshot_is_what_the_place_says(gateway: RedisGateway, bare_client: redis.Redis) -> None:
    client = bare_client
    orders = RedisMessageQueue("orders", client=client, get_deduplication_key=str)
    orders.publish_many(["a", "b", "b", "c"])
    lease = orders.claim(2)
    jobs = RedisJobQueue("jobs", client=client)
    jobs.enqueue_many([[1], [2]])
    stream = RedisStreamQueue("s", client=client)
    stream.publish_many("xyz")
    billing = stream.group("billing", start="beginning")
    billing.claim(1)
    client.set("sluicegate:{wrong}:pending", "text")
    places = [
        Place("orders"),
        Place("jobs"),
        Place("s", stream=True),
        Place("s", stream=True, group="billing"),
        Place("s", stream=True, group="none"),
        Place("wrong"),
        Place("unknown"),
    ]
    found = read_snapshots(gateway, places)
    assert list(found) == places
    first, of_jobs, of_stream, of_group, none, wrong, unknown = found.values()
    assert isinstance(first, Snapshot)
    assert first.stats == orders.stats()
    assert (first.depth.ready, first.depth.in_flight, first.holds_jobs) == (1, 2, False)
    assert first.depth.next_expiry_seconds == pytest.approx(300, abs=5)
    assert isinstance(of_jobs, Snapshot)
    assert (of_jobs.depth.ready, of_jobs.stats.published, of_jobs.holds_jobs) == (2, 2, True)
    assert of_stream == StreamSnapshot(stream.info())
    assert isinstance(of_group, Snapshot)
    assert (of_group.depth.ready, of_group.depth.in_flight, of_group.stats.claimed) == (2, 1, 1)
    assert isinstance(none, GroupNotFoundError)
    assert isinstance(wrong, WrongKeyTypeError)
    assert wrong.queue == "wrong"
    assert unknown == Snapshot(RedisMessageQueue("unknown", client=client).depth(), orders.stats().__class__())
    lease.ack()


def test_expired_leases_are_counted_over_pages(gateway: RedisGateway, client: redis.Redis) -> None:
    queue = RedisMessageQueue("orders", client=client)
    queue.publish_many([str(number) for number in range(700)])
    for _ in range(600):
        queue.claim(1)
    state.expire(client, "orders")
    (found,) = read_snapshots(gateway, [Place("orders")]).values()
    assert isinstance(found, Snapshot)
    assert (found.depth.expired, found.depth.ready, found.stats.claimed) == (600, 700, 600)


def test_two_hundred_places_cost_one_command_each(gateway: RedisGateway, client: redis.Redis) -> None:
    places = [Place(f"queue-{number}") for number in range(200)]
    for place in places:
        RedisMessageQueue(place.name, client=client).publish("x")
    read_snapshots(gateway, places)
    client.config_resetstat()
    assert all(
        isinstance(each, Snapshot) and each.depth.ready == 1 for each in read_snapshots(gateway, places).values()
    )
    stats = client.info("commandstats")
    assert stats["cmdstat_evalsha"]["calls"] == 200
    assert "cmdstat_eval" not in stats


def test_an_unreachable_redis_is_an_error_of_ours(tmp_path: object) -> None:
    gateway = RedisGateway(url=f"unix://{tmp_path}/none.sock", retry_budget_seconds=0)
    with pytest.raises(RedisUnavailableError, match=r"none\.sock"):
        find_places(gateway)
    with pytest.raises(RedisUnavailableError):
        gateway.ask([("PING",)])


def test_without_the_right_to_scan_the_error_says_what_to_do(server: RedisServer, client: redis.Redis) -> None:
    client.execute_command("ACL", "SETUSER", "reader", "on", ">secret", "~*", "&*", "+@all", "-scan")
    reader = server.client(username="reader", password="secret")
    try:
        with pytest.raises(RedisAccessError, match=r"refused SCAN .*name them") as error:
            find_places(RedisGateway(redis_client=reader))
        assert "secret" not in str(error.value)
    finally:
        reader.close()
        client.execute_command("ACL", "DELUSER", "reader")


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def names(found: list[FoundPlace]) -> list[str]:
    return [each.place.name for each in found]


def test_a_directory_answers_at_once_and_finds_anew_behind(gateway: RedisGateway, client: redis.Redis) -> None:
    clock = _Clock()
    directory = PlaceDirectory(gateway, refresh_seconds=60, clock=clock)
    RedisMessageQueue("a", client=client).publish("x")
    assert names(directory.places()) == ["a"]
    RedisMessageQueue("b", client=client).publish("x")
    clock.now = 59
    assert names(directory.places()) == ["a"]
    assert not directory.is_refreshing
    clock.now = 61
    assert names(directory.places()) == ["a"], "what is known is answered while it scans"
    directory.close()
    assert names(directory.places()) == ["a", "b"]
    assert directory.found_at == 61


def test_a_directory_keeps_what_it_knows_through_an_outage(server: RedisServer) -> None:
    own = RedisServer(server.program).start()
    try:
        clock = _Clock()
        gateway = RedisGateway(url=own.url, retry_budget_seconds=0)
        directory = PlaceDirectory(gateway, refresh_seconds=1, clock=clock)
        RedisMessageQueue("a", gateway=gateway).publish("x")
        assert names(directory.places()) == ["a"]
        own.stop()
        clock.now = 2
        assert names(directory.places()) == ["a"]
        directory.close()
        assert isinstance(directory.error, RedisUnavailableError)
        assert names(directory.places()) == ["a"]
    finally:
        own.remove()
