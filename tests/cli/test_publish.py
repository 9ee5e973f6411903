"""Publishing from files, stdin and arguments: what arrives, what a repeat does, and which line an error names."""

from __future__ import annotations

import gzip
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pyarrow
import pytest
import redis
from pyarrow import parquet

from sluicegate import RedisMessageQueue
from tests.cli.conftest import Call
from tests.cli.test_main import PROGRAM
from tests.support import markers
from tests.support.flavours import MakeQueue, MakeStream
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

ORDERS = [{"tenant": "acme", "order_id": number, "note": "grüße"} for number in range(5)]


def written(path: Path, messages: list[dict[str, Any]]) -> Path:
    """Write messages as JSON lines."""
    path.write_text("".join(f"{json.dumps(one)}\n" for one in messages))
    return path


def payloads(queue: RedisMessageQueue) -> list[Any]:
    """Return the payloads that wait in a queue."""
    return [message.json() for message in queue.peek(1000)]


def feed(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """Put bytes on the standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_json_lines_are_published_once_under_their_keys(call: Call, orders: RedisMessageQueue) -> None:
    path = written(Path("orders.jsonl"), ORDERS)

    first = call("publish", "orders", path, "--key", "{tenant}:{order_id}", "--json").record
    again = call("publish", "orders", path, "--key", "{tenant}:{order_id}", "--json").record

    assert payloads(orders) == ORDERS
    assert orders.peek(1)[0].deduplication_key == "acme:0"
    assert (first["published"], first["duplicates"], first["complete"]) == (5, 0, True)
    assert (again["published"], again["duplicates"], again["complete"]) == (0, 5, True)


def test_a_key_of_several_fields_and_a_window_are_those_of_the_queue(
    call: Call, orders: RedisMessageQueue, client: redis.Redis
) -> None:
    path = written(Path("orders.jsonl"), ORDERS)

    call("publish", "orders", path, "--key", "tenant", "--key", "order_id", "--window", "2h")

    held = markers.held(client, orders.session.keys)
    assert len(held) == 5
    assert all(7100 < markers.left_ms(client, orders.session.keys, key) / 1000 <= 7200 for key in held)


def test_a_batch_is_published_once_without_keys(call: Call, orders: RedisMessageQueue) -> None:
    path = written(Path("orders.jsonl"), ORDERS)

    for _ in range(2):
        assert call("publish", "orders", path, "--batch-id", "june").code == 0

    assert payloads(orders) == ORDERS
    assert orders.get_batch("june").status().total == 5


@pytest.mark.parametrize("form", ["csv", "csv.gz", "jsonl.zip", "parquet"])
def test_files_of_every_form_are_read(call: Call, orders: RedisMessageQueue, form: str) -> None:
    rows = [{"id": "1", "name": "x"}, {"id": "2", "name": None}]
    path = Path(f"orders.{form}")
    if form == "parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif form == "jsonl.zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        content = b"id,name\n1,x\n2,\n"
        path.write_bytes(gzip.compress(content) if form.endswith("gz") else content)

    assert call("publish", "orders", path).code == 0
    assert payloads(orders) == rows


@pytest.mark.parametrize(
    ("form", "content", "expected"),
    [
        ((), b'{"id": 1}\n\n{"id": 2}', [b'{"id":1}', b'{"id":2}']),
        (("--format", "csv", "--empty-as-text"), b"id,name\n1,\n", [b'{"id":"1","name":""}']),
        (("--format", "text"), "héllo\r\n{not json}\n".encode(), ["héllo".encode(), b"{not json}"]),
    ],
    ids=["jsonl", "csv", "text"],
)
def test_stdin_is_read_as_the_format_says(
    call: Call,
    orders: RedisMessageQueue,
    monkeypatch: pytest.MonkeyPatch,
    form: tuple[str, ...],
    content: bytes,
    expected: list[bytes],
) -> None:
    feed(monkeypatch, content)

    assert call("publish", "orders", *form).code == 0
    assert [message.payload for message in orders.peek()] == expected


def test_parquet_comes_through_stdin_too(
    call: Call, orders: RedisMessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist([{"id": 7}]), sink)
    feed(monkeypatch, sink.getvalue())

    assert call("publish", "orders", "-", "--format", "parquet").code == 0
    assert payloads(orders) == [{"id": 7}]


def test_messages_of_arguments_carry_headers_and_a_delay(call: Call, orders: RedisMessageQueue) -> None:
    done = call("publish", "orders", "-m", '{"id": 1}', "--header", "a=b=c", "--header", "type=order", "--delay", "1h")

    assert "published   1 message, " in done.out
    (message,) = orders.peek(state="delayed")
    assert (message.json(), message.headers) == ({"id": 1}, {"a": "b=c", "type": "order"})
    assert 3500 < (orders.depth().next_due_seconds or 0) <= 3600


def test_a_stream_is_published_to_with_keys(call: Call, make_stream: MakeStream) -> None:
    stream = make_stream("events")

    for published in (1, 0):
        done = call("publish", "events", "--stream", "-m", '{"id": 1}', "--key", "id", "--json")
        assert (done.record["kind"], done.record["published"]) == ("stream", published)
    assert stream.info().length == 1


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("a.jsonl", b'{"id": 1}\n{"id": 2\n', (), "a.jsonl, line 2: not JSON: "),
        ("a.jsonl", b'{"id": 1}\n7\n', (), "a.jsonl, line 2: a message is a JSON object or array, not int"),
        ("a.jsonl", b'{"id": 1}\n{"x": 2}\n', ("--key", "id"), "a.jsonl, line 2: deduplication field 'id' is missing"),
        ("a.csv", b"id,name\n1,x\n2\n", (), "a.csv, line 3: the row has 1 cells, the header 2"),
        ("a.csv", b"id,name\n1,x\n", ("--key", "order_id"), "a.csv, line 2: deduplication field 'order_id' is missing"),
        ("a.json", b"[1,\n2]", (), "a.json, line 1: not JSON: "),
        ("a.csv.gz", b"no gzip", (), "a.csv.gz: the file is damaged or cut short"),
        ("a.xml", b"<a/>", (), "the name of a.xml does not say its format; the known suffixes are .jsonl"),
        ("a.jsonl", b"", ("--format", "xml"), "--format must be one of jsonl, csv, parquet, text, not 'xml'"),
        ("a.jsonl", b"", ("--batch-size", "5000"), "batch_size must be"),
        ("a.jsonl", b"", ("-m", "{}"), "give either files or --message"),
        ("a.jsonl", b"", ("--header", "x"), "Invalid value for --header: 'x' is no header; write NAME=VALUE"),
        ("a.jsonl", b"", ("--durability", "x"), "Invalid value for --durability: 'x' is none of memory, fsync and "),
        ("a.jsonl", b"", ("--window", "soon"), "Invalid value for '--window': 'soon' is no duration; write a number"),
        ("a.jsonl", b"", ("--group", "g"), "group 'g' of stream 'orders': publish to its stream"),
        ("a.jsonl", b"", ("--jobs",), "queue of jobs 'orders': jobs are enqueued by a program"),
    ],
)
def test_what_cannot_be_published_is_named_with_its_place_and_remedy(
    call: Call, orders: RedisMessageQueue, name: str, content: bytes, options: tuple[str, ...], message: str
) -> None:
    Path(name).write_bytes(content)

    failed = call("publish", "orders", name, *options)

    assert failed.code == (1 if "damaged" in message else 2)
    assert failed.err.startswith(f"error: {message}")
    assert orders.depth().ready == 0


def test_an_error_midway_counts_what_stays_published_and_a_repeat_publishes_the_rest(
    call: Call, orders: RedisMessageQueue
) -> None:
    path = Path("orders.jsonl")
    lines = [json.dumps(one) for one in ORDERS]
    path.write_text("\n".join([*lines[:4], "{broken", lines[4]]))
    options = ("--key", "order_id", "--batch-size", "2", "--json")

    failed = call("publish", "orders", path, *options)
    path.write_text("\n".join(lines))
    again = call("publish", "orders", path, *options)

    assert failed.code == 2
    assert (failed.record["published"], failed.record["complete"]) == (4, False)
    error = json.loads(failed.err)["error"]
    assert error["type"] == "PublishStoppedError"
    assert error["message"].startswith("orders.jsonl, line 5: not JSON")
    assert "the 2 batches before it stay published: 4 messages" in error["message"]
    assert (again.code, again.record["published"], again.record["duplicates"]) == (0, 1, 4)
    assert payloads(orders) == ORDERS


def test_an_error_never_quotes_a_payload(call: Call, orders: RedisMessageQueue) -> None:
    Path("a.jsonl").write_text('{"secret": "CANARY"\n')
    Path("b.csv").write_text("id\n1,CANARY\n")

    for name in ("a.jsonl", "b.csv"):
        assert "CANARY" not in call("publish", "orders", name).err


def test_a_dry_run_checks_every_line_and_publishes_nothing(call: Call, orders: RedisMessageQueue) -> None:
    path = written(Path("orders.jsonl"), ORDERS)

    checked = call("publish", "orders", path, "--key", "order_id", "--dry-run", "--json")
    with path.open("a") as file:
        file.write('{"no": "key"}\n')
    failed = call("publish", "orders", path, "--key", "order_id", "--dry-run")

    assert (checked.code, checked.record["dry_run"], checked.record["published"]) == (0, True, 5)
    assert failed.code == 2
    assert failed.err.startswith("error: orders.jsonl, line 6: deduplication field 'order_id' is missing")
    assert orders.depth().published_total == 0


def test_a_full_queue_is_refused_with_code_4(call: Call, orders: RedisMessageQueue) -> None:
    Path("sluicegate.toml").write_text("[options.orders]\nmax_pending_length = 3\n")
    path = written(Path("orders.jsonl"), ORDERS)

    failed = call("publish", "orders", path)

    assert failed.code == 4
    assert "max_pending_length" in failed.err
    assert orders.depth().ready == 0


@pytest.mark.parametrize("arguments", [("publish", "orders", "-m", "{}"), ("depth", "orders"), ("peek", "orders")])
def test_a_key_of_another_type_is_named_with_code_4(
    call_bare: Call, bare_client: redis.Redis, server: RedisServer, arguments: tuple[str, ...]
) -> None:
    bare_client.set("sluicegate:{orders}:pending", "x")

    failed = call_bare(*arguments, "--url", server.url)

    assert failed.code == 4
    assert "sluicegate:{orders}:pending" in failed.err


def test_a_terminal_on_stdin_is_no_input(call: Call, orders: RedisMessageQueue, url: str) -> None:
    ours, theirs = pty.openpty()
    try:
        ended = subprocess.run(
            [*PROGRAM, "publish", "orders", "--url", url], stdin=theirs, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(ours)
        os.close(theirs)

    assert ended.returncode == 2
    assert b"there is nothing on stdin; name a file, give --message, or pipe JSON lines in" in ended.stderr


def test_several_files_are_published_in_their_order(call: Call, make_queue: MakeQueue) -> None:
    queue = make_queue("orders")
    for number, name in enumerate(("a.jsonl", "b.jsonl")):
        written(Path(name), [{"id": number}])

    assert call("publish", "orders", "a.jsonl", "b.jsonl", "--json").record["published"] == 2
    assert payloads(queue) == [{"id": 0}, {"id": 1}]
    assert call("publish", "orders", "a.jsonl", "b.jsonl", "--batch-id", "x").code == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["SIGINT", "SIGKILL"])
def test_a_publish_that_was_stopped_is_finished_by_a_repeat(
    call: Call, orders: RedisMessageQueue, url: str, number: int
) -> None:
    lines = [f'{{"id": {one}}}\n' for one in range(250)]
    command = ["publish", "orders", "--key", "id", "--batch-size", "100"]
    with subprocess.Popen(
        [*PROGRAM, *command, "--url", url], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as first:
        assert first.stdin is not None
        assert first.stderr is not None
        first.stdin.write("".join(lines))
        first.stdin.flush()
        wait_until(lambda: orders.depth().ready >= 200, "two batches are published")
        first.send_signal(number)
        said = first.stderr.read()
    Path("orders.jsonl").write_text("".join(lines))

    again = call(*command, "orders.jsonl", "--json").record

    assert first.returncode == (130 if number == signal.SIGINT else -number)
    if number == signal.SIGINT:
        # The reply to the second batch may not have been read.
        assert re.match(r"queue 'orders': interrupted after [12]00 messages; the current batch may be published", said)
    assert (again["published"], again["duplicates"]) == (50, 200)
    assert [one["id"] for one in payloads(orders)] == list(range(250))
