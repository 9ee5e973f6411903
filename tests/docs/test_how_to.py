"""The code of the how-to pages does what the pages say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import redis

from sluicegate import LeaseHandle, LeaseLostError, PublishUnknownError, RedisMessageQueue, RedisUnavailableError
from tests.support.snippets import snippet


def names_of(code: str, **names: Any) -> dict[str, Any]:
    exec(compile(code, "page", "exec", dont_inherit=True), names)  # noqa: S102  (it is ours)
    return names


def test_an_unknown_publish_is_repeated_until_redis_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    publish_all = names_of(snippet("publish-again"))["publish_all"]
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    unknown = PublishUnknownError("the outcome is unknown", ids=["a"])

    class Queue:
        """This queue answers the second repeat."""

        def publish_many(self, orders: object) -> None:
            raise unknown

        def publish_again(self, error: PublishUnknownError) -> str:
            assert error is unknown
            if len(pauses) < 2:
                raise RedisUnavailableError("still away")
            return "the report"

    assert publish_all(Queue(), []) == "the report"
    assert pauses == [10, 10]
    monkeypatch.setattr(Queue, "publish_again", Queue.publish_many)
    with pytest.raises(PublishUnknownError):
        publish_all(Queue(), [])


def test_a_batch_is_claimed_in_one_process_and_acked_in_the_next(client: redis.Redis, tmp_path: Path) -> None:
    names = names_of(snippet("detach-and-attach"))
    queue = RedisMessageQueue("orders", client=client)
    names["take"](queue, tmp_path / "handle")
    assert not (tmp_path / "handle").exists()
    queue.publish_many({"amount": number} for number in range(4))

    names["take"](queue, tmp_path / "handle")
    assert queue.depth().in_flight == 4
    assert names["work"](queue, tmp_path / "handle") == 6
    assert (queue.depth().in_flight, queue.depth().ready) == (0, 0)
    assert names["work"](queue, tmp_path / "handle") == 4

    queue.publish({"amount": 1})
    names["take"](queue, tmp_path / "other")
    handle = LeaseHandle.from_json((tmp_path / "other").read_text())
    taken = queue.claim(lease_id=handle.id, take_over_after_seconds=0)
    assert len(taken) == 1
    with pytest.raises(LeaseLostError):
        names["work"](queue, tmp_path / "other")
    queue.close()


def test_dead_letters_are_counted_by_cause_and_redriven_by_reason(
    client: redis.Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = RedisMessageQueue("orders", client=client)
    queue.publish_many(["one", "two", "three"])
    lease = queue.claim(3)
    first, second, third = lease
    lease.bury([first, second], reason="handler_error", error=ValueError("no stock"))
    lease.bury([third])

    names_of(snippet("look-at-the-dead"), queue=queue)
    assert capsys.readouterr().out.splitlines() == ["2 handler_error ValueError", "1 buried "]
    names_of(snippet("redrive-some"), queue=queue)
    assert capsys.readouterr().out.splitlines() == ["2 would move", "2 moved, 0 blocked by a message with the same key"]
    assert (queue.depth().ready, queue.depth().dead) == (2, 1)
    queue.close()


def test_a_loop_over_single_messages_gives_each_its_verdict(client: redis.Redis) -> None:
    shipped: list[int] = []

    def ship(order: dict[str, int]) -> bool:
        shipped.append(order["amount"])
        if len(shipped) == 3:
            queue.close()
        return order["amount"] != 2

    queue = RedisMessageQueue("orders", client=client)
    queue.publish_many({"amount": amount} for amount in (1, -1, 2, 3, 4))
    names_of(snippet("consume"), ship=ship)["work"](queue)
    with RedisMessageQueue("orders", client=client) as queue:
        depth = queue.depth()
        assert shipped == [1, 2, 3]
        assert (queue.stats().acked, depth.dead, depth.delayed, depth.ready) == (1, 1, 1, 2)
        assert [dead.reason for dead in queue.peek(state="dead")] == ["negative amount"]
