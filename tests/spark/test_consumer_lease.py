"""A consumer has one reader at a time, whatever call is repeated, late or lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from sluicegate.core.keys import QueueKeys
from sluicegate.spark.transitions import ConsumerLease, Span, acquire_consumer_call
from tests.support.core_calls import Core

Ask = Callable[..., ConsumerLease]


@pytest.fixture
def core(client: redis.Redis) -> Core:
    return Core(client)


@pytest.fixture
def ask(core: Core) -> Ask:
    """Acquires the consumer `c`."""

    def asking(reader: str, epoch: int, floor: int = -1, top: int = -1) -> ConsumerLease:
        return core.do(acquire_consumer_call(core.keys, "c", reader.encode(), epoch, floor=floor, top=top))

    return asking


def test_a_new_epoch_is_the_servers_time_and_grows(ask: Ask, core: Core, client: redis.Redis) -> None:
    before, _ = client.time()
    first = ask("a", 0)
    assert first == ConsumerLease(True, first.epoch, 0, 0, ())
    assert before * 1000 - 1000 <= first.epoch <= before * 1000 + 60_000
    client.hset(core.keys.consumer("c"), "epoch", first.epoch + 10**9)
    assert ask("b", 0).epoch == first.epoch + 10**9 + 1


def test_a_repeat_of_a_new_epoch_is_the_same(ask: Ask) -> None:
    first = ask("a", 0)
    assert ask("a", 0) == first
    ask("a", first.epoch, 0, 9)
    assert ask("a", 0) == ConsumerLease(True, first.epoch, 0, 9, ())


def test_a_reader_that_lost_its_seat_never_gets_it_back(ask: Ask) -> None:
    first = ask("a", 0)
    second = ask("b", 0)
    for epoch in (0, first.epoch, second.epoch):
        assert ask("a", epoch) == ConsumerLease(False, second.epoch)
        assert ask("a", epoch, 1, 2) == ConsumerLease(False, second.epoch)
    assert ask("b", second.epoch).acquired


def test_an_older_epoch_is_refused_to_a_new_reader(ask: Ask) -> None:
    first = ask("a", 0)
    second = ask("b", 0)
    assert ask("c", first.epoch) == ConsumerLease(False, second.epoch)
    assert ask("b", second.epoch, 0, 1).acquired


def test_a_restart_takes_the_seat_of_its_own_epoch_and_learns_how_far_it_is(ask: Ask) -> None:
    epoch = ask("a", 0).epoch
    ask("a", epoch, 3, 7)
    assert ask("b", epoch) == ConsumerLease(True, epoch, 3, 7, ())
    assert ask("b", epoch) == ConsumerLease(True, epoch, 3, 7, ())
    assert not ask("a", epoch, 4, 8).acquired


def test_floor_and_top_only_grow(ask: Ask) -> None:
    epoch = ask("a", 0).epoch
    assert ask("a", epoch, 5, 9) == ConsumerLease(True, epoch, 5, 9, ())
    assert ask("a", epoch, 2, 4) == ConsumerLease(True, epoch, 5, 9, ())


def test_a_new_epoch_is_told_what_older_ones_may_hold_until_it_is_kept(ask: Ask) -> None:
    first = ask("a", 0)
    ask("a", first.epoch, 2, 5)
    second = ask("b", 0)
    assert second.left == (Span(first.epoch, 2, 5),)
    third = ask("c", 0)
    assert third.left == second.left
    ask("c", third.epoch, 0, 4)
    assert ask("c", third.epoch).left == ()
    assert ask("d", 0).left == (Span(third.epoch, 0, 4),)


def test_a_seat_that_was_lost_is_taken_with_the_epoch_of_the_checkpoint(
    ask: Ask, core: Core, client: redis.Redis
) -> None:
    epoch = ask("a", 0).epoch
    client.delete(core.keys.consumer("c"))
    assert ask("a", epoch, 3, 5) == ConsumerLease(True, epoch)
    assert ask("a", epoch, 3, 5) == ConsumerLease(True, epoch, 3, 5, ())
    newer = ask("b", epoch + 7)
    assert newer == ConsumerLease(True, epoch + 7)


def test_the_seat_ends_by_itself(ask: Ask, core: Core, client: redis.Redis) -> None:
    ask("a", 0)
    assert 29 * 86_400_000 < client.pttl(core.keys.consumer("c")) <= 30 * 86_400_000


def test_a_bounded_number_of_readers_and_spans_is_remembered(ask: Ask, core: Core, client: redis.Redis) -> None:
    for number in range(40):
        epoch = ask(f"reader-{number}", 0).epoch
        client.hset(core.keys.consumer("c"), "top", 5)
    kept = client.hgetall(core.keys.consumer("c"))
    assert len(kept[b"readers"].split()) == len(kept[b"left"].split()) == 16
    assert kept[b"readers"].split()[-1] == b"reader-39"
    assert int(kept[b"epoch"]) == epoch


def test_consumers_have_seats_of_their_own(core: Core) -> None:
    names = ["c", "C", "{c}", "c:d", "x" * 200, "x" * 201, "#c"]
    assert len({core.keys.consumer(name) for name in names}) == len(names)
    assert all(len(core.keys.consumer(name)) < 80 for name in names)
    assert all(b"{orders}" in QueueKeys("orders").consumer(name) for name in names)
