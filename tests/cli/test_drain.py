"""Draining with a program: its exit code is the verdict, and signals let it finish."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sluicegate import RedisMessageQueue
from tests.cli.conftest import Call
from tests.cli.test_main import PROGRAM
from tests.support.flavours import MakeGroup
from tests.support.waiting import DEADLINE_SECONDS, wait_until


def script(name: str, code: str) -> str:
    """Write a Python program, and return the command that runs it."""
    Path(name).write_text(f"import json, os, sys\n{code}")
    return f"{sys.executable} {name}"


def test_each_message_is_given_to_a_program_of_its_own(call: Call, orders: RedisMessageQueue) -> None:
    orders.publish_many([{"id": number} for number in range(3)], headers={"type": "order"})
    program = script(
        "work.py",
        "names = ('SLUICEGATE_QUEUE', 'SLUICEGATE_MESSAGE_ID', 'SLUICEGATE_DELIVERY_COUNT', 'SLUICEGATE_HEADERS')\n"
        "print(json.dumps([json.load(sys.stdin), *(os.environ[name] for name in names)]), file=open('done', 'a'))\n",
    )
    ids = [message.id for message in orders.peek()]

    shown = call("drain", "orders", "--exec", program, "--json")

    assert shown.code == 0
    assert [json.loads(line) for line in Path("done").read_text().splitlines()] == [
        [{"id": number}, "orders", one, "1", '{"type": "order"}'] for number, one in enumerate(ids)
    ]
    drained = shown.record["drain"]
    assert (drained["claimed"], drained["acked"], drained["partitions"][0]["ended"]) == (3, 3, "empty")
    assert (orders.depth().ready, orders.stats().acked) == (0, 3)


def test_the_exit_code_decides(call: Call, orders: RedisMessageQueue) -> None:
    orders.publish_many([{"code": code} for code in (0, 3, 65, 75)])
    program = script("work.py", "code = json.load(sys.stdin)['code']\nprint('no tea', file=sys.stderr)\nsys.exit(code)")

    shown = call("drain", "orders", "--exec", program, "--bury-on", "65", "--release-on", "75")

    assert shown.code == 1
    assert "no tea" in shown.err
    (buried,) = orders.peek(state="dead")
    # This drain does not claim again what it released, so that waits for others for a while.
    released, delayed = sorted(orders.peek(state="delayed"), key=lambda message: message.delivery_count)
    assert (buried.message.json(), delayed.json(), released.json()) == ({"code": 65}, {"code": 3}, {"code": 75})  # type: ignore[union-attr]
    assert (buried.reason, buried.error) == ("exit_code", "exit code 65: no tea")
    assert (delayed.delivery_count, released.delivery_count) == (1, 0)
    assert f"  {delayed.id}: exit code 3: no tea (returned)" in shown.out.splitlines()


def test_a_batch_is_split_until_the_failing_message_is_alone(call: Call, orders: RedisMessageQueue) -> None:
    orders.publish_many([{"id": number} for number in range(8)])
    program = script(
        "work.py",
        "batch = [json.loads(line) for line in sys.stdin]\n"
        "ids = [one['payload']['id'] for one in batch]\nprint(ids, file=open('calls', 'a'))\nsys.exit(5 in ids)",
    )

    shown = call("drain", "orders", "--exec", program, "--batch", "8", "--json")

    assert (shown.code, shown.record["drain"]["acked"], shown.record["drain"]["returned"]) == (1, 7, 1)
    assert [message.json() for message in orders.peek(state="delayed")] == [{"id": 5}]
    assert Path("calls").read_text().splitlines()[:2] == ["[0, 1, 2, 3, 4, 5, 6, 7]", "[0, 1, 2, 3]"]


def test_a_program_that_does_not_end_is_ended_with_what_it_started(call: Call, orders: RedisMessageQueue) -> None:
    orders.publish({"id": 1})

    shown = call("drain", "orders", "--exec", "sh -c 'sleep 600 & echo $! > child; wait'", "--timeout", "500ms")

    child = int(Path("child").read_text())
    assert shown.code == 1
    assert "not ended within 0.5 s" in shown.out
    wait_until(lambda: not _runs(child), "the child of the program has ended")


def _runs(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_payload_that_nobody_reads_stops_nothing(call: Call, orders: RedisMessageQueue) -> None:
    orders.publish("x" * 1_000_000)

    assert call("drain", "orders", "--exec", "true").code == 0
    assert orders.depth().ready == 0


def test_a_limit_leaves_the_rest(call: Call, orders: RedisMessageQueue) -> None:
    orders.publish_many([{"id": number} for number in range(5)])

    call("drain", "orders", "--exec", "true", "--limit", "2", "--workers", "2")

    assert orders.depth().ready == 3


def test_a_group_is_drained_from_its_start(call: Call, make_group: MakeGroup) -> None:
    call("publish", "events", "--stream", "-m", '{"id": 1}', "-m", '{"id": 2}')

    shown = call("drain", "events", "--group", "billing", "--start", "beginning", "--exec", "true", "--json")

    assert shown.record["drain"]["acked"] == 2
    assert make_group("events", "billing").depth().ready == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--exec", "no-such-program x"), "there is no program 'no-such-program'; no shell is used, so write"),
        (("--exec", "sh -c 'x"), "--exec cannot be split into words: No closing quotation"),
        (("--exec", " "), "--exec is blank; give a program and its arguments"),
        (("--exec", "true", "--limit", "1", "--wait", "1s"), "give either --limit or --wait"),
        ((), "Missing option '--exec'"),
    ],
)
def test_a_program_that_cannot_run_is_refused_before_anything_is_claimed(
    call: Call, orders: RedisMessageQueue, options: tuple[str, ...], message: str
) -> None:
    orders.publish("x")

    failed = call("drain", "orders", *options)

    assert failed.code == 2
    assert failed.err.startswith(f"error: {message}")
    assert orders.stats().claimed == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_lets_the_program_finish_and_ends_the_drain(
    orders: RedisMessageQueue, url: str, tmp_path: Path, number: int
) -> None:
    orders.publish_many([{"id": one} for one in range(3)])
    program = (
        f"sh -c 'touch {tmp_path}/begun; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; touch {tmp_path}/done'"
    )
    drain = subprocess.Popen(
        [*PROGRAM, "drain", "orders", "--url", url, "--exec", program, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(Path(tmp_path, "begun").exists, "the program has begun")
    drain.send_signal(number)
    Path(tmp_path, "go").touch()
    out, err = drain.communicate(timeout=DEADLINE_SECONDS)

    assert drain.returncode == 128 + number
    assert err == ""
    assert Path(tmp_path, "done").exists()
    drained = json.loads(out)["drain"]
    assert (drained["acked"], drained["partitions"][0]["ended"]) == (1, "interrupted")
    assert (orders.depth().ready, orders.depth().in_flight) == (2, 0)


def test_a_program_that_fails_prints_no_traceback(url: str, orders: RedisMessageQueue) -> None:
    orders.publish("x")

    ended = subprocess.run(
        [*PROGRAM, "drain", "orders", "--url", url, "--exec", "false"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )

    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert "ProgramFailedError: exit code 1" in ended.stderr
