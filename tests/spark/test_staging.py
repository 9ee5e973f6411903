"""Staged writes: exactly the stages of the first commit are published, in steps that any repeat finds done."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from sluicegate import QueueBackpressureError, RedisMessageQueue
from sluicegate.core import publishing
from sluicegate.core.entry import client_part
from sluicegate.core.keys import QueueKeys
from sluicegate.spark.transitions import stage_rows_call
from sluicegate.spark.writing import staging as _staging
from sluicegate.spark.writing.naming import RowNames, digest_of
from sluicegate.spark.writing.sending import Sender
from sluicegate.spark.writing.staging import Stage, StageLostError, StageWriter
from tests.support.flavours import MakeQueue
from tests.support.servers import RedisServer


class Crash(BaseException):
    """The driver dies."""


@pytest.fixture
def sender(queue: RedisMessageQueue) -> Iterator[Sender]:
    made = Sender(RedisMessageQueue.from_spec(queue.spec()), bound=True)
    yield made
    made.close()


def parts(*names: str, keyed: bool = False) -> list[bytes]:
    return [client_part(b"", name.encode() if keyed else b"", b"", name.encode()) for name in names]


def staged(sender: Sender, first: int, last: int, *, write: str = "w", most: int = 10, keyed: bool = False) -> Stage:
    writer = StageWriter(sender, write, 0, most)
    for at in range(first, last, 7):
        writer.append(parts(*(str(number) for number in range(at, min(at + 7, last))), keyed=keyed))
    stage = writer.stage()
    assert stage is not None
    return stage


def published(queue: RedisMessageQueue) -> list[int]:
    return [int(message.payload) for message in queue.peek(100_000)]


def crash_at(sender: Sender, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Die before the so manieth call of the commit; pages, publishes and records alike."""
    gateway, seen = sender._queue.session.runner.gateway, [0]
    for name in ("execute", "send"):
        plain = getattr(type(gateway), name)

        def counted(self: Any, *args: Any, plain: Any = plain, **options: Any) -> Any:
            seen[0] += 1
            if seen[0] == number:
                raise Crash
            return plain(self, *args, **options)

        monkeypatch.setattr(type(gateway), name, counted)


def test_rows_are_published_in_their_order_and_their_stages_dropped(
    queue: RedisMessageQueue, sender: Sender, client: redis.Redis
) -> None:
    stages = [staged(sender, 0, 45), staged(sender, 45, 60)]
    assert queue.depth().ready == 0
    done = _staging.commit(sender, "w", stages)
    assert (done.published, done.duplicates, done.repeated) == (60, 0, False)
    assert sorted(published(queue)) == list(range(60))
    assert [number for number in published(queue) if number < 45] == list(range(45))
    assert list(client.scan_iter("*:stage:*")) == []


@pytest.mark.parametrize("dies_at", [None, 3, 5, 7])
def test_large_rows_among_small_ones_make_steps_of_their_own(
    queue: RedisMessageQueue, sender: Sender, monkeypatch: pytest.MonkeyPatch, dies_at: int | None
) -> None:
    monkeypatch.setattr(publishing, "MAX_BYTES_PER_CALL", 100)
    writer = StageWriter(sender, "w", 0, 10)
    payloads = [f"{number:02}" if number % 5 else f"{number:02}" + "x" * 80 for number in range(20)]
    writer.append(parts(*payloads))
    stage = writer.stage()
    assert stage is not None
    if dies_at is not None:
        with monkeypatch.context() as patched:
            crash_at(sender, patched, dies_at)
            with pytest.raises(Crash):
                _staging.commit(sender, "w", [stage])
    sizes = []
    send = sender.batch

    def batch(sent: list[bytes], *args: Any, **options: Any) -> Any:
        sizes.append(sum(map(len, sent)))
        return send(sent, *args, **options)

    monkeypatch.setattr(sender, "batch", batch)
    _staging.commit(sender, "w", [stage])
    assert max(sizes) <= 100
    assert [message.payload.decode() for message in queue.peek(100)] == payloads


def test_a_commit_that_is_repeated_publishes_nothing(queue: RedisMessageQueue, sender: Sender) -> None:
    stages = [staged(sender, 0, 25)]
    assert not _staging.is_done(sender, "w")
    _staging.commit(sender, "w", stages)
    assert _staging.is_done(sender, "w")
    again = _staging.commit(sender, "w", stages)
    assert (again.published, again.repeated) == (0, True)
    later = _staging.commit(sender, "w", [staged(sender, 0, 25)])
    assert (later.published, later.repeated) == (0, True)
    assert published(queue) == list(range(25))


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("rerun", ["the same stages", "stages of a new run"])
def test_a_commit_that_dies_at_any_call_is_ended_by_the_next(
    queue: RedisMessageQueue, sender: Sender, client: redis.Redis, rerun: str, keyed: bool
) -> None:
    crashes, number = 0, 1
    while True:
        client.flushall()
        stages = [staged(sender, 0, 25, keyed=keyed), staged(sender, 25, 40, keyed=keyed)]
        with pytest.MonkeyPatch.context() as patch:
            crash_at(sender, patch, number)
            try:
                _staging.commit(sender, "w", stages)
                died = False
            except Crash:
                died = True
        if not died:
            break
        crashes, number = crashes + 1, number + 1
        if rerun != "the same stages":
            stages = [staged(sender, 0, 40, keyed=keyed)]
        _staging.commit(sender, "w", stages)
        assert Counter(published(queue)) == Counter(range(40)), f"after a crash at call {number - 1}"
        assert _staging.is_done(sender, "w")
    assert crashes >= 12


def test_another_page_size_of_the_next_run_publishes_nothing_twice(
    queue: RedisMessageQueue, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = staged(sender, 0, 40, most=10)
    with monkeypatch.context() as patch:
        crash_at(sender, patch, 6)
        with pytest.raises(Crash):
            _staging.commit(sender, "w", [stage])
    assert 0 < len(published(queue)) < 40
    _staging.commit(sender, "w", [staged(sender, 0, 40, most=15)])
    assert published(queue) == list(range(40))


def test_large_rows_are_published_in_small_steps(
    sender: Sender, monkeypatch: pytest.MonkeyPatch, queue: RedisMessageQueue
) -> None:
    monkeypatch.setattr(_staging, "_STEP_BYTES", 1000)
    writer = StageWriter(sender, "w", 0, 100)
    writer.append(parts(*(str(number) * 300 for number in range(8))))
    stage = writer.stage()
    assert stage is not None
    assert (stage.rows, stage.step) == (8, 3)
    assert _staging.commit(sender, "w", [stage]).published == 8


def test_duplicates_are_counted(queue: RedisMessageQueue, sender: Sender) -> None:
    done = _staging.commit(sender, "w", [staged(sender, 0, 20, keyed=True), staged(sender, 15, 30, keyed=True)])
    assert (done.published, done.duplicates) == (30, 5)
    assert sorted(published(queue)) == list(range(30))


# ---------------------------------------------------------------------- what is gone


def test_a_stage_that_is_gone_stops_the_task(sender: Sender, client: redis.Redis) -> None:
    writer = StageWriter(sender, "w", 0, 10)
    writer.append(parts("a", "b"))
    client.delete(*client.scan_iter("*:stage:*"))
    with pytest.raises(StageLostError, match="the 2 rows that this task had staged are gone"):
        writer.append(parts("c"))


def test_a_stage_that_is_gone_before_the_commit_stops_all_of_it(
    queue: RedisMessageQueue, sender: Sender, client: redis.Redis
) -> None:
    stages = [staged(sender, 0, 10), staged(sender, 10, 20)]
    client.delete(QueueKeys(queue.name).stage(stages[1].name.encode()))
    with pytest.raises(
        StageLostError, match=r"'w': what was staged by one of its tasks is gone.*nothing was published"
    ):
        _staging.commit(sender, "w", stages)
    assert queue.depth().ready == 0
    assert _staging.commit(sender, "w", [staged(sender, 0, 20)]).published == 20


def test_a_stage_that_is_gone_in_the_middle_of_a_commit_is_told(
    queue: RedisMessageQueue, sender: Sender, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = staged(sender, 0, 30)
    with monkeypatch.context() as patch:
        crash_at(sender, patch, 4)
        with pytest.raises(Crash):
            _staging.commit(sender, "w", [stage])
    client.delete(QueueKeys(queue.name).stage(stage.name.encode()))
    with pytest.raises(StageLostError, match=r"before it was published whole.*another writeId"):
        _staging.commit(sender, "w", [staged(sender, 0, 30)])


def test_what_a_commit_needs_outlives_what_it_may_repeat(
    queue: RedisMessageQueue, sender: Sender, client: redis.Redis
) -> None:
    """A stage that no commit names expires within a day; a named one lives as long as its record.

    The receipts of its steps live longer.
    """
    keys = QueueKeys(queue.name)
    stage, other = staged(sender, 0, 20), staged(sender, 20, 30)
    assert 0 < client.pttl(keys.stage(stage.name.encode())) <= 86_400_000
    with pytest.MonkeyPatch.context() as patch:
        crash_at(sender, patch, 4)
        with pytest.raises(Crash):
            _staging.commit(sender, "w", [stage])
    record, named = client.pttl(keys.write(digest_of("w"))), client.pttl(keys.stage(stage.name.encode()))
    receipts = [client.pttl(key) for key in client.scan_iter("*:published:*")]
    assert client.pttl(keys.stage(other.name.encode())) <= 86_400_000 < named <= record
    assert receipts
    assert min(receipts) * 0.9 > record, "a repeat is answered until nothing can be repeated"


# ---------------------------------------------------------------------- abort


@pytest.mark.parametrize("again", [True, False])
def test_an_abort_before_the_commit_drops_everything(
    queue: RedisMessageQueue, sender: Sender, client: redis.Redis, again: bool
) -> None:
    stages = [staged(sender, 0, 10), staged(sender, 10, 20)]
    assert _staging.abort(sender, "w", stages, again=again).startswith("the 20 rows that 2 finished tasks had staged")
    assert list(client.scan_iter("*:stage:*")) == []
    assert queue.depth().ready == 0


@pytest.fixture
def capped(server: RedisServer, make_queue: MakeQueue) -> Sender:
    """To a queue that takes 25 messages."""
    return Sender(make_queue(url=server.url, max_pending_length=25), bound=True)


def test_an_abort_after_a_commit_that_failed_leaves_it_to_the_next_run(
    capped: Sender, queue: RedisMessageQueue, client: redis.Redis
) -> None:
    stages = [staged(capped, 0, 40)]
    with pytest.raises(QueueBackpressureError) as caught:
        _staging.commit(capped, "w", stages)
    assert caught.value.__notes__[:-1] == [
        "write 'w': 20 of 40 staged rows were published before this error and stay so"
    ]
    assert "the same write under the same writeId completes it" in _staging.abort(capped, "w", stages, again=True)
    queue.claim(20).ack()
    _staging.commit(capped, "w", [staged(capped, 0, 40)])
    assert published(queue) == list(range(20, 40))


def test_an_abort_of_what_nobody_can_run_again_drops_what_is_not_published(
    capped: Sender, queue: RedisMessageQueue, client: redis.Redis
) -> None:
    stages = [staged(capped, 0, 40)]
    with pytest.raises(QueueBackpressureError):
        _staging.commit(capped, "w", stages)
    _staging.abort(capped, "w", stages, again=False)
    assert list(client.scan_iter("*:stage:*")) == []
    assert published(queue) == list(range(20))


# ---------------------------------------------------------------------- names of rows


def test_rows_are_named_by_write_partition_content_and_occurrence() -> None:
    def names(write: str, partition: int, *rows: bytes) -> list[bytes]:
        return RowNames(write, partition).keys(rows)

    alike = names("w", 0, b"a", b"a", b"b", b"a")
    assert len(set(alike)) == 4
    assert set(names("w", 0, b"b", b"a", b"a", b"a")) == set(alike), "whatever the order"
    others = [names("w", 1, b"a"), names("v", 0, b"a"), names("w", 0, b"c")]
    assert not {name for group in others for name in group} & set(alike)
    assert names("1", 1, b"a") != names("11", 0, b"a") != names("", 11, b"a")
    assert names("w", 0, b"a", b"a")[1] not in names("w", 0, b"a1", b"a#1", b"a2")


def test_a_late_append_does_not_shorten_the_life_that_a_commit_gave(sender: Sender, client: redis.Redis) -> None:
    stage = staged(sender, 0, 14)
    name = stage.name.encode()
    with pytest.MonkeyPatch.context() as patch:
        crash_at(sender, patch, 2)
        with pytest.raises(Crash):
            _staging.commit(sender, "w", [stage])
    rows = parts(*map(str, range(7, 14)))
    assert sender.run(stage_rows_call(sender.keys, name, 7, rows, life_seconds=86_400)) == 14
    assert client.pttl(sender.keys.stage(name)) > 6 * 86_400_000


def test_two_commits_at_a_time_publish_once_and_neither_fails(
    queue: RedisMessageQueue, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = [staged(sender, 0, 45), staged(sender, 45, 60)]
    plain, begun = Sender.batch, threading.Event()

    def batch(self: Sender, *args: Any, **options: Any) -> Any:
        if not begun.is_set():
            begun.set()
            _staging.commit(sender, "w", stages)
        return plain(self, *args, **options)

    monkeypatch.setattr(Sender, "batch", batch)
    _staging.commit(sender, "w", stages)
    assert Counter(published(queue)) == Counter(range(60))


def test_the_record_of_a_write_is_read_whole_once(sender: Sender, client: redis.Redis) -> None:
    stages = [staged(sender, number, number + 1) for number in range(40)]
    client.config_resetstat()
    _staging.commit(sender, "w", stages)
    assert client.info("commandstats")["cmdstat_hgetall"]["calls"] == 1
