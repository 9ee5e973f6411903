"""`sluicegate watch` reads places again and again, and draws them for terminals, files and programs."""

from __future__ import annotations

import io
from datetime import datetime
from itertools import count
from typing import Any

import pytest
import redis
from rich.console import Console

from sluicegate import RedisGateway, RedisMessageQueue, survey
from sluicegate.cli.context import Cli
from sluicegate.cli.places import Target
from sluicegate.cli.watching import Order, Row, Watcher, frame, ordered, rate
from sluicegate.errors import RedisUnavailableError
from sluicegate.gates import Gate
from sluicegate.place import Place
from sluicegate.survey import read_snapshots
from tests.cli.conftest import Call
from tests.support.servers import free_port


def drawn(rows: list[Row], *, width: int = 130, height: int | None = None, note: str = "") -> list[str]:
    """Return the lines of a frame as a terminal shows them."""
    console = Console(file=io.StringIO(), width=width, force_terminal=True, record=True)
    at = datetime(2026, 1, 2, 12, 4, 10)  # noqa: DTZ001
    console.print(frame(rows, title="redis:6379", at=at, console=console, height=height, note=note))
    return [line.rstrip() for line in console.export_text().splitlines()]


def target(name: str, group: str | None = None) -> Target:
    return Target(Cli(), Place(name, stream=group is not None, group=group), "group" if group else "queue")


BUSY = Row(
    target("orders"),
    ready=12345,
    in_flight=20,
    delayed=3,
    dead=2,
    oldest_seconds=4000.0,
    published_per_second=1234.5,
    acked_per_second=0.5,
    history=[0, 5, 10, 20, 40, 80],
    state="paused",
)


def test_a_frame_shows_numbers_rates_and_a_sparkline() -> None:
    lines = drawn([BUSY, Row(target("events", "billing"), error="no such group")])
    assert lines[0] == "redis:6379   12:04:10   2 places"
    assert lines[1].split() == ["place", "ready", "in/s", "acked/s", "in", "flight", "delayed", "dead", "oldest"]
    assert " ".join(lines[3].split()) == "orders queue 12,345 ▁▁▂▃▅█ 1,234 0.5 20 3 2 1h 6m paused"
    assert lines[4].split()[:2] == ["events/billing", "group"]
    assert lines[4].endswith("error")
    assert lines[5] == "group 'billing' of stream 'events': no such group"


def test_a_narrow_or_low_terminal_gets_what_fits() -> None:
    rows = [Row(target(f"queue-with-a-long-name-{number}"), ready=number, in_flight=0, dead=0) for number in range(30)]
    lines = drawn(rows, width=70, height=14)
    assert max(map(len, lines)) <= 70
    assert len(lines) <= 14
    assert "… and 21 places more" in lines[-1]
    assert "delayed" not in lines[1]


def test_a_problem_is_shown_above_the_last_values() -> None:
    lines = drawn([BUSY], note="Redis cannot be reached")
    assert lines[1] == "Redis cannot be reached"
    assert "12,345" in lines[4]


def test_names_cannot_steer_the_terminal() -> None:
    lines = drawn([Row(target("a\x1b[31m\nb"), ready=1, in_flight=0, dead=0)])
    assert len(lines) == 4
    assert "\\x1b[31m" in lines[3]


@pytest.mark.parametrize(("order", "names"), [("name", "abc"), ("ready", "bca"), ("rate", "cab")])
def test_rows_are_ordered_and_errors_come_first(order: Order, names: str) -> None:
    rows = [
        Row(target("b"), ready=9, published_per_second=0.0),
        Row(target("c"), ready=5, published_per_second=9.0),
        Row(target("a"), ready=1, published_per_second=1.0),
        Row(target("x"), error="broken"),
    ]
    assert "".join(row.target.place.name for row in ordered(rows, order)) == f"x{names}"


def test_rates_are_those_between_two_readings(orders: RedisMessageQueue, client: redis.Redis) -> None:
    gateway = RedisGateway(redis_client=client)
    watcher, place = Watcher({"orders": Gate(min_ready=5)}), target("orders")

    def read(now: float) -> Row:
        (row,) = watcher.rows({place: read_snapshots(gateway, [place.place])[place.place]}, now)
        return row

    first = read(100.0)
    assert (first.published_per_second, first.ready, first.state) == (None, 0, "gate closed")
    orders.publish_many(["a"] * 10)
    orders.claim(limit=4).ack()
    second = read(102.0)
    assert (second.published_per_second, second.acked_per_second) == (5.0, 2.0)
    assert (second.ready, second.state, list(second.history)) == (6, "gate open (depth)", [0, 6])
    assert [rate(each) for each in (None, 0.0, 0.25, 12345.6)] == ["-", "0", "0.2", "12,346"]


def test_a_pipe_gets_frames_and_a_program_gets_json(call: Call, orders: RedisMessageQueue) -> None:
    orders.publish("a")
    called = call("watch", "--count", 2, "--interval", 0.1)
    assert called.code == 0
    assert called.out.count("orders  queue") == 2
    assert "\x1b" not in called.out
    records = call("watch", "orders", "--count", 2, "--interval", 0.1, "--json").records
    assert [each["ready"] for each in records] == [1, 1]
    assert [each["published_per_second"] for each in records] == [None, 0.0]


def test_an_outage_is_shown_until_it_has_passed(
    call: Call, orders: RedisMessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first reading succeeds, the second one fails, and the third one succeeds again."""
    orders.publish("a")
    read, number = survey.read_snapshots, count()

    def failing(*arguments: Any, **options: Any) -> Any:
        if next(number) == 1:
            raise RedisUnavailableError("Redis cannot be reached")
        return read(*arguments, **options)

    monkeypatch.setattr(survey, "read_snapshots", failing)
    called = call("watch", "orders", "--count", 3, "--interval", 0.1, "--json")
    assert called.code == 0
    assert [each.get("error", each.get("ready")) for each in called.records] == [1, 1, "Redis cannot be reached", 1]


def test_a_first_reading_that_fails_ends_it(call_bare: Call) -> None:
    called = call_bare("watch", "orders", "--url", f"redis://127.0.0.1:{free_port()}/0")
    assert (called.code, [line.split()[0] for line in called.err.splitlines()]) == (3, ["error:", "See"])
