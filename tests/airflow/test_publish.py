"""Publishing from a task: what is accepted, what is reported, and how it fails. Real Redis, no scheduler."""

from __future__ import annotations

import datetime
import decimal
import json
import logging
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sluicegate.compat import AirflowFailException, AirflowSkipException
from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator
from sluicegate import RedisMessageQueue, replicated
from sluicegate.bulk.publisher import Publisher, PublishStoppedError
from sluicegate.bulk.reader import Reader
from sluicegate.embedded import connect as connect_embedded
from sluicegate.errors import PublishUnknownError, RedisUnavailableError
from tests.airflow.conftest import PASSWORD, Connect
from tests.airflow.deployment import Deployment, xcoms
from tests.airflow.instance import Instance
from tests.airflow.servers import PasswordServer
from tests.support import markers
from tests.support.servers import free_port
from tests.support.snippets import snippet

pytestmark = pytest.mark.airflow

Orders = Callable[..., Path]


def publish(queue: RedisMessageQueue | str, context: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
    name = queue if isinstance(queue, str) else queue.name
    operator = RedisQueuePublishOperator(task_id="publish", queue_name=name, **arguments)
    report: dict[str, Any] = operator.execute(context or {})  # type: ignore[arg-type]
    return report


def stopped(queue: RedisMessageQueue | str, **arguments: Any) -> PublishStoppedError:
    """Publish, and return the error; one that another try would meet again has failed the task for good."""
    with pytest.raises((PublishStoppedError, AirflowFailException)) as error:
        publish(queue, **arguments)
    assert "CANARY" not in str(error.value)
    failed_for_good = isinstance(error.value, AirflowFailException)
    found = error.value.__cause__ if failed_for_good else error.value
    assert isinstance(found, PublishStoppedError)
    assert (str(found), found.is_permanent) == (str(error.value), failed_for_good)
    return found


def payloads(queue: RedisMessageQueue) -> list[Any]:
    return [message.json() for message in queue.peek(10_000)]


def numbers(count: int) -> list[dict[str, Any]]:
    return [{"id": number} for number in range(1, count + 1)]


@pytest.mark.parametrize(
    "messages",
    [
        [{"id": 1}, {"id": 2}],
        ({"id": 1}, {"id": 2}),
        iter([{"id": 1}, {"id": 2}]),
        lambda: [{"id": 1}, {"id": 2}],
        lambda: iter([{"id": 1}, {"id": 2}]),
        lambda: ({"id": number} for number in (1, 2)),
        lambda first: [{"id": first}, {"id": 2}],
        lambda **context: [{"id": context["first"]}, {"id": 2}],
    ],
    ids=["list", "tuple", "iterator", "function", "function of iterator", "generator", "context name", "whole context"],
)
def test_publishes_what_an_iterable_or_a_function_gives(queue: RedisMessageQueue, messages: Any) -> None:
    report = publish(queue, {"first": 1, "ds": "2013-01-01"}, messages=messages)

    assert payloads(queue) == [{"id": 1}, {"id": 2}]
    assert report["published"] == 2


def test_publishes_text_bytes_and_lists(queue: RedisMessageQueue) -> None:
    publish(queue, messages=["text", b"bytes", [1, 2]])

    assert [message.payload for message in queue.peek()] == [b"text", b"bytes", b"[1,2]"]


def test_the_report_counts_and_names_the_ends_without_payloads(queue: RedisMessageQueue) -> None:
    queue_with_key: dict[str, Any] = {"deduplication_key": "id", "batch_size": 2}
    publish(queue, messages=[{"id": 1}, {"id": 5}], **queue_with_key)

    report = publish(
        queue,
        messages=numbers(6),
        transform=lambda message: None if message["id"] == 3 else message,
        **queue_with_key,
    )

    assert payloads(queue) == [{"id": number} for number in (1, 5, 2, 4, 6)]
    ids = [message.id for message in queue.peek()]
    assert report.pop("seconds") >= 0
    assert report == {
        "queue": queue.name,
        "published": 3,
        "duplicates": 2,
        "dropped": 1,
        "batches": 3,
        "first_message_id": ids[2],
        "last_message_id": ids[4],
    }


def test_nothing_to_publish_is_reported_as_such(queue: RedisMessageQueue, tmp_path: Path) -> None:
    (tmp_path / "empty.csv").touch()

    for report in (publish(queue, messages=[]), publish(queue, path=tmp_path / "empty.csv")):
        assert (report["published"], report["batches"], report["first_message_id"]) == (0, 0, None)
    assert queue.depth().published_total == 0


@pytest.mark.parametrize(
    "key",
    ["{tenant}:{order_id}", ["tenant", "order_id"], lambda order: f"{order['tenant']}:{order['order_id']}"],
    ids=["template", "fields", "function"],
)
def test_a_second_run_publishes_nothing_again(queue: RedisMessageQueue, orders: Orders, key: Any) -> None:
    first = publish(queue, path=orders(25), deduplication_key=key, batch_size=10)
    again = publish(queue, path=orders(30), deduplication_key=key, batch_size=10)

    assert (first["published"], first["duplicates"]) == (25, 0)
    assert (again["published"], again["duplicates"]) == (5, 25)
    assert [order["order_id"] for order in payloads(queue)] == list(range(1, 31))


def test_positions_let_a_retry_publish_only_what_is_missing(queue: RedisMessageQueue, orders: Orders) -> None:
    def given(run: str, map_index: int = -1, try_number: int = 1) -> dict[str, Any]:
        instance = Instance()
        instance.run_id, instance.map_index, instance.try_number = run, map_index, try_number
        return {"context": {"ti": instance}, "deduplication_key": "position", "batch_size": 10}

    with pytest.raises(AirflowFailException, match="messages that were published are refused as duplicates for 3600 s"):
        publish(queue, **given("monday"), path=orders(25, broken=21))
    retried = publish(queue, **given("monday", try_number=2), path=orders(25))
    cleared = publish(queue, **given("monday", try_number=3), path=orders(25))
    others = [
        publish(queue, **given(*other), path=orders(25)) for other in (("tuesday",), ("monday", 0), ("monday", 1))
    ]

    assert [(report["published"], report["duplicates"]) for report in (retried, cleared)] == [(5, 20), (0, 25)]
    assert [report["published"] for report in others] == [25, 25, 25]
    assert [order["order_id"] for order in payloads(queue)] == [*range(1, 26)] * 4


def test_positions_are_those_of_the_input(queue: RedisMessageQueue, instance: Instance) -> None:
    position: dict[str, Any] = {"context": {"ti": instance}, "deduplication_key": "position"}
    publish(queue, **position, messages=["a", "drop", "c"], transform=lambda text: None if text == "drop" else text)

    again = publish(queue, **position, messages=["a", "b", "a", "a"])

    assert [message.text() for message in queue.peek()] == ["a", "c", "b", "a"]
    assert again["duplicates"] == 2


def test_a_field_named_position_is_asked_for_as_a_list(queue: RedisMessageQueue) -> None:
    report = publish(queue, messages=[{"position": 1}, {"position": 1}], deduplication_key=["position"])

    assert report["duplicates"] == 1


def test_a_key_that_an_ack_frees_is_no_help_for_a_retry(queue: RedisMessageQueue, instance: Instance) -> None:
    until_acked = {"deduplication_policy": "until_acked"}
    with pytest.raises(AirflowFailException, match='"position" needs the deduplication_policy "window"'):
        publish(queue, {"ti": instance}, messages=["a"], deduplication_key="position", queue_options=until_acked)

    error = stopped(queue, messages=[{"id": 1}, {}], deduplication_key="id", batch_size=1, queue_options=until_acked)
    assert str(error).endswith(
        "messages that were published are refused as duplicates until they are acked; "
        "running it again once this is put right publishes those again that are acked by then"
    )


def test_a_csv_becomes_json_and_transform_gives_types(queue: RedisMessageQueue, tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("id,price,note\n1,9,\n2,,x\n")

    publish(queue, path=path)
    publish(queue, path=str(path), empty_as_null=False, transform=lambda row: {**row, "id": int(row["id"])})

    assert payloads(queue) == [
        {"id": "1", "price": "9", "note": None},
        {"id": "2", "price": None, "note": "x"},
        {"id": 1, "price": "9", "note": ""},
        {"id": 2, "price": "", "note": "x"},
    ]


def test_headers_arrive_with_every_message(queue: RedisMessageQueue) -> None:
    publish(queue, messages=numbers(2), headers={"source": "x"})

    assert [message.headers for message in queue.peek()] == [{"source": "x"}] * 2


IN_AN_HOUR = datetime.datetime.now(datetime.UTC).replace(microsecond=0) + datetime.timedelta(hours=1)


@pytest.mark.parametrize(
    "when",
    [
        {"due_at": IN_AN_HOUR},
        {"due_at": IN_AN_HOUR.isoformat()},
        {"due_at": f" {IN_AN_HOUR:%Y-%m-%dT%H:%M:%SZ}"},
        {"due_at": IN_AN_HOUR.astimezone(datetime.timezone(datetime.timedelta(hours=5))).isoformat()},
        {"delay_seconds": 3600},
        {"delay_seconds": "3600.0"},
    ],
)
def test_every_batch_falls_due_when_asked(queue: RedisMessageQueue, embedded_url: str, when: dict[str, Any]) -> None:
    expected = time.time() + 3600 if "delay_seconds" in when else IN_AN_HOUR.timestamp()
    publish(queue, messages=numbers(5), batch_size=2, **when)

    assert (queue.depth().ready, queue.depth().delayed) == (0, 5)
    with connect_embedded(embedded_url) as client:
        due = [score / 1000 for _, score in client.zrange(queue.session.keys.delayed, 0, -1, withscores=True)]
    assert due == pytest.approx([expected] * 5, abs=60)


@pytest.mark.parametrize(
    ("when", "reason"),
    [
        ({"due_at": "2030-01-31T06:00:00"}, "due_at is a naive datetime"),
        ({"due_at": datetime.datetime(2030, 1, 31)}, "due_at is a naive datetime"),  # noqa: DTZ001
        ({"due_at": "tomorrow"}, "a time in ISO 8601 with a zone, such as 2030-01-31T06:00:00+00:00, not 'tomorrow'"),
        ({"due_at": ""}, "not ''; if it is a template, it rendered to nothing"),
        ({"due_at": "None"}, "not 'None'; if it is a template, it rendered to nothing"),
        ({"due_at": 1893456000}, "due_at must be a datetime with a zone or its text in ISO 8601, not 1893456000"),
        ({"due_at": IN_AN_HOUR, "delay_seconds": 1}, "give delay_seconds or due_at, not both"),
        ({"delay_seconds": "soon"}, "delay_seconds must be a number of seconds, not 'soon'"),
        ({"delay_seconds": " "}, "not ' '; if it is a template, it rendered to nothing"),
        ({"delay_seconds": None}, "delay_seconds must be a number of 0 or more"),
        ({"delay_seconds": -1}, "delay_seconds must be a number of 0 or more"),
        ({"delay_seconds": "nan"}, "delay_seconds must be a number of 0 or more"),
        ({"durability": "disk"}, "durability must be 'memory', 'fsync' or replicated(n), not 'disk'"),
        ({"durability": "replicated"}, "durability=replicated(1), from sluicegate import replicated"),
    ],
)
def test_a_time_or_durability_that_cannot_work_publishes_nothing(
    queue: RedisMessageQueue, when: dict[str, Any], reason: str
) -> None:
    with pytest.raises(AirflowFailException) as refused:
        publish(queue, messages=numbers(3), **when)

    assert reason in str(refused.value)
    assert queue.depth().published_total == 0


def test_a_batch_that_is_not_durable_counts_as_published(queue: RedisMessageQueue) -> None:
    durability = replicated(1, timeout_seconds=0.01)

    error = stopped(queue, messages=numbers(5), batch_size=2, durability=durability, deduplication_key="id")

    assert str(error).startswith("2 of 2 messages were published, but 0 of 1 replicas had it")
    assert "the 1 batches up to it stay published: 2 messages" in str(error)
    assert "a retry is safe" in str(error)
    assert (error.published, error.batches, error.is_permanent) == (2, 1, False)


def test_queue_options_reach_the_queue_and_the_advice(queue: RedisMessageQueue, embedded_url: str) -> None:
    def produce() -> Iterator[Any]:
        yield from numbers(2)
        with connect_embedded(embedded_url) as client:
            assert 0 < markers.left_ms(client, queue.session.keys, b"1") <= 60_000
        raise OSError

    window = {"deduplication_window_seconds": 60}
    error = stopped(queue, messages=produce, batch_size=1, deduplication_key="id", queue_options=window)

    assert "refused as duplicates for 60 s after their publish" in str(error)


def test_the_input_is_streamed_one_batch_at_a_time(queue: RedisMessageQueue) -> None:
    class Order(dict[str, int]):
        pass

    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    max_alive, behind = 0, []

    class Tracked(Order):
        __hash__ = object.__hash__  # type: ignore[assignment]

    def produce() -> Iterator[Order]:
        nonlocal max_alive
        for number in range(1000):
            order = Tracked(id=number)
            alive.add(order)
            max_alive = max(max_alive, len(alive))
            behind.append(number - queue.depth().pending)
            yield order

    assert publish(queue, messages=produce, batch_size=50, deduplication_key="id")["batches"] == 20
    assert max_alive <= 3, "what is encoded already is not kept as it was read"
    # A batch is in Redis before the first message of the next one is asked for.
    assert max(behind) == 49


@pytest.mark.parametrize("source", ["list", "file"])
def test_what_is_at_hand_is_read_while_redis_works(queue: RedisMessageQueue, orders: Orders, source: str) -> None:
    behind = []

    def transform(order: Any) -> Any:
        number = order["order_id"] if source == "file" else order["id"]
        behind.append(number - queue.depth().published_total)
        return order

    given: dict[str, Any] = {"path": orders(1000)} if source == "file" else {"messages": numbers(1000)}
    report = publish(queue, **given, transform=transform, batch_size=50)

    assert (report["published"], report["batches"]) == (1000, 20)
    assert 50 < max(behind) <= 100, (
        "the next batch is read before the one before it is confirmed, and no more than that"
    )


def test_a_payload_beyond_the_limit_is_named_by_its_place(queue: RedisMessageQueue) -> None:
    with pytest.raises(AirflowFailException, match=r"message 5: payload takes 99 bytes .*; the 3 batches before"):
        publish(
            queue,
            messages=["a", "drop", "b", "c", "x" * 99, "d"],
            transform=lambda text: None if text == "drop" else text,
            batch_size=1,
            queue_options={"max_payload_bytes": 50},
        )


def test_an_iterator_that_was_read_is_not_taken_for_all_of_it_by_a_retry(queue: RedisMessageQueue) -> None:
    def produce() -> Iterator[dict[str, int]]:
        yield from numbers(2)
        raise OSError("the line dropped")

    operator = RedisQueuePublishOperator(task_id="publish", queue_name=queue.name, messages=produce())
    with pytest.raises(PublishStoppedError, match="reading stopped after message 2: the line dropped"):
        operator.execute({})

    with pytest.raises(AirflowFailException, match="give the function that makes it"):
        operator.execute({})


# ---------------------------------------------------------------------- bad input


def test_a_malformed_line_stops_with_what_was_published(queue: RedisMessageQueue, orders: Orders) -> None:
    path = orders(2500, broken=1501)
    error = stopped(queue, path=path, deduplication_key="{tenant}:{order_id}")

    text = str(error)
    assert text.startswith(f"{path}, line 1501: not JSON")
    assert "the 1 batches before it stay published: 1000 messages, and 0 refused as duplicates" in text
    assert "running it again once this is put right is safe: messages that were published are refused" in text
    assert error.is_permanent
    assert (error.published, error.duplicates, error.batches) == (1000, 0, 1)
    assert queue.depth().pending == 1000

    # Once the file is put right, a retry publishes what is missing and nothing twice.
    report = publish(queue, path=orders(2500), deduplication_key="{tenant}:{order_id}")
    assert (report["published"], report["duplicates"]) == (1500, 1000)


def test_without_a_key_the_error_warns_of_a_retry(queue: RedisMessageQueue, orders: Orders) -> None:
    text = str(stopped(queue, path=orders(10, broken=6), batch_size=5))

    assert "without a deduplication_key, running it again once this is put right publishes those" in text
    assert queue.depth().pending == 5


def test_a_malformed_first_line_publishes_nothing(queue: RedisMessageQueue, orders: Orders) -> None:
    error = stopped(queue, path=orders(10, broken=1))

    assert "line 1: not JSON" in str(error)
    assert str(error).endswith("no batch was published before it; running it again once this is put right is safe")
    assert queue.depth().published_total == 0


def _quoting(order: dict[str, Any]) -> str:
    if "note" in order:
        raise ValueError(f"no key in {order}")
    return str(order["order_id"])


@pytest.mark.parametrize(
    ("key", "change", "reason"),
    [
        ("order_id", {"order_id": None}, "deduplication field 'order_id' is null in the payload"),
        ("{tenant}:{order_id}", {"order_id": 1.5}, "deduplication field 'order_id' must be a str or an int, not float"),
        (["tenant", "address.city"], {"address": "CANARY"}, "needs a dict at address, found str"),
        (lambda order: order["key"], {"key": ""}, "get_deduplication_key returned ''; a deduplication key must be"),
        (lambda order: order["key"], {"key": {"CANARY": 1}}, "get_deduplication_key returned a dict"),
        (lambda order: order["key"], {"missing": "CANARY"}, "KeyError"),
        (_quoting, {"note": "CANARY"}, "ValueError"),
        (lambda order: order["key"], {"when": datetime.date(2013, 1, 1)}, "payload has a date at $.when"),
        (None, {"when": datetime.date(2013, 1, 1)}, "payload has a date at $.when"),
        (None, {"when": datetime.date(2013, 1, 1)}, "json_default="),
        (None, {"note": b"\xffCANARY"}, "payload has a bytes at $.note"),
        (None, {"note": "\ud800"}, "lone surrogate at $.note"),
        (None, {"price": float("nan")}, "payload has nan at $.price"),
    ],
)
def test_a_message_that_cannot_be_published_is_named(
    queue: RedisMessageQueue, key: Any, change: dict[str, Any], reason: str
) -> None:
    good = {"tenant": "acme", "order_id": 1, "address": {"city": "Ulm"}, "key": "k"}
    messages = [good] * 25
    messages[16] = {**good, **change}
    if "missing" in change:
        del messages[16]["key"]

    error = stopped(queue, messages=messages, deduplication_key=key, batch_size=10)

    assert str(error).startswith("message 17: ")
    assert reason in str(error)
    assert error.batches == 1
    assert error.is_permanent == (reason not in ("KeyError", "ValueError")), "code of the user's may depend on anything"


def test_a_row_without_its_key_is_named_by_its_line(queue: RedisMessageQueue, tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text('id,note\n1,"two\nlines"\n,CANARY\n')

    assert str(stopped(queue, path=path, deduplication_key="id")).startswith(
        f"{path}, line 4: deduplication field 'id' is null in the payload"
    )


def test_a_transform_that_raises_is_named_by_its_line(queue: RedisMessageQueue, tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("id\n1\nCANARY\n")

    error = stopped(queue, path=path, transform=lambda row: {"id": int(row["id"])})

    assert str(error).startswith(f"{path}, line 3: transform raised ValueError; ")
    assert not error.is_permanent


def test_a_generator_that_raises_tells_how_far_it_came(queue: RedisMessageQueue) -> None:
    def produce() -> Iterator[dict[str, int]]:
        yield from numbers(12)
        raise ValueError("CANARY")

    error = stopped(queue, messages=produce, batch_size=5)

    assert str(error).startswith("reading stopped after message 12: ValueError; the 2 batches before it")
    assert isinstance(error.__cause__, ValueError)


async def _asynchronous() -> list[Any]:
    return []


async def _asynchronous_generator() -> Any:
    yield {}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "exactly one of messages and path"),
        ({"messages": [], "path": "a.csv"}, "exactly one of messages and path"),
        ({"messages": {"id": 1}}, "a dict (wrap a single message in a list)"),
        ({"messages": "{{ params.messages }}"}, "not a str; a template of a task's output is a text, so give"),
        ({"path": " "}, "path is ' '; if it is a template, it rendered to nothing"),
        ({"messages": b"bytes"}, "not a bytes"),
        ({"messages": 7}, "not a int"),
        ({"messages": lambda: None}, "not None"),
        ({"messages": _asynchronous}, "messages is asynchronous"),
        ({"messages": _asynchronous_generator}, "messages is asynchronous"),
        ({"path": "a.txt"}, "does not exist"),
        ({"path": "None"}, "path is 'None'; if it is a template, it rendered to nothing"),
        ({"path": 7}, "path must be a path, a URL or an ObjectStoragePath, not int"),
        ({"path": "."}, "is not a file; give the path of one file, or map the task over several"),
        ({"messages": [], "deduplication_key": ""}, "deduplication_key is ''; if it is a template, it rendered to"),
        ({"messages": [], "queue_name": " "}, "queue name is blank"),
        ({"messages": [], "queue_options": {"get_deduplication_key": "id"}}, "give deduplication_key instead"),
        ({"messages": [], "queue_options": {"url": "redis://x"}}, "url is not an option here"),
        ({"messages": [], "queue_options": {"max_delivery_count": 0}}, "max_delivery_count must be"),
        ({"messages": [], "deduplication_key": "{order_id"}, "unpaired '{'"),
        ({"messages": [], "deduplication_key": "{o.__class__!r}"}, "not a dotted path"),
    ],
)
def test_arguments_that_cannot_work_are_refused_at_execution(
    queue: RedisMessageQueue, arguments: dict[str, Any], reason: str
) -> None:
    operator = RedisQueuePublishOperator(task_id="publish", **{"queue_name": queue.name, **arguments})

    with pytest.raises((AirflowFailException, FileNotFoundError)) as refused:
        operator.execute({})

    assert reason in str(refused.value)


def test_a_message_too_large_for_the_server_is_named_by_its_place(
    queue: RedisMessageQueue, embedded_url: str, tmp_path: Path
) -> None:
    path = tmp_path / "orders.jsonl"
    rows = [{"id": number, "note": "x" * (1_500_000 if number == 16 else 1)} for number in range(1, 21)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with connect_embedded(embedded_url) as client:
        before = client.config_get("proto-max-bulk-len")
        client.config_set("proto-max-bulk-len", 1024 * 1024)
        try:
            error = stopped(queue, path=path, batch_size=10)
        finally:
            client.config_set("proto-max-bulk-len", int(before["proto-max-bulk-len"]))

    assert str(error).startswith(f"{path}, line 16: the message at position 15 has 15")
    assert (error.published, error.batches) == (10, 1)


def test_an_async_key_function_is_refused_before_anything_is_read(queue: RedisMessageQueue) -> None:
    async def key(order: dict[str, Any]) -> str:
        return str(order["id"])

    operator = RedisQueuePublishOperator(
        task_id="publish", queue_name=queue.name, messages=numbers(3), deduplication_key=key
    )
    with pytest.raises(AirflowFailException, match=r"async"):
        operator.execute({})
    assert queue.depth().published_total == 0


@pytest.mark.parametrize("batch_size", [0, 1001])
def test_a_batch_size_that_cannot_work_publishes_nothing(queue: RedisMessageQueue, batch_size: int) -> None:
    error = stopped(queue, messages=numbers(3), batch_size=batch_size)

    assert "batch_size must be an int from 1 to 1000" in str(error)
    assert queue.depth().published_total == 0


def test_rows_of_an_sql_hook_hold_dates_and_decimals(queue: RedisMessageQueue) -> None:
    row = {"when": datetime.datetime(2013, 1, 1, 5, 17, tzinfo=datetime.UTC), "price": decimal.Decimal("10.50")}

    publish(queue, messages=[row], json_default="iso")

    assert payloads(queue) == [{"when": "2013-01-01T05:17:00+00:00", "price": "10.50"}]


def test_the_documented_dag_publishes_its_rows(
    airflow_deployment: Deployment, embedded_url: str, connect: Connect, tmp_path: Path
) -> None:
    connect(extra={"url": embedded_url})
    file = tmp_path / "documented_publish.py"
    file.write_text(snippet("airflow-publish"))

    with airflow_deployment.dags([file]) as dags:
        run = dags["publish_rows"].test()

    assert xcoms(run)["publish"]["published"] == 1000
    queue = RedisMessageQueue("rows", url=embedded_url)
    assert queue.peek(1)[0].json()["price"] == "9.90"
    queue.close()


def test_a_source_without_messages_skips_the_task_if_asked(queue: RedisMessageQueue, instance: Instance) -> None:
    operator = RedisQueuePublishOperator(task_id="p", queue_name=queue.name, messages=[], skip_if_empty=True)

    with pytest.raises(AirflowSkipException, match="no message to publish"):
        operator.execute({"ti": instance})  # type: ignore[typeddict-item]

    assert instance.pushed["return_value"]["published"] == 0
    dropping = {"messages": [{"id": 1}], "transform": lambda _: None, "skip_if_empty": True}
    assert publish(queue, **dropping)["dropped"] == 1


# ---------------------------------------------------------------------- Redis goes away


def test_redis_not_running_is_said_at_once_without_the_password(connect: Connect) -> None:
    port = free_port()
    connect(host="localhost", port=port, password=PASSWORD)

    error = stopped("orders", messages=numbers(3))

    assert f"Redis at localhost:{port} cannot be reached" in str(error)
    assert not error.is_permanent
    assert str(error).endswith("no batch was published before it; a retry is safe")
    assert PASSWORD not in str(error)
    assert isinstance(error.__cause__, RedisUnavailableError)


def test_redis_going_away_midway_leaves_the_batch_in_hand_unknown(connect: Connect) -> None:
    server = PasswordServer(PASSWORD).start()
    connect(host="localhost", port=server.port, password=PASSWORD)

    def produce() -> Iterator[dict[str, int]]:
        yield from numbers(15)
        server.stop()
        yield from numbers(15)

    options = {"retry_budget_seconds": 0.1, "retry_max_delay_seconds": 0.01}
    try:
        error = stopped("orders", messages=produce, batch_size=10, deduplication_key="id", queue_options=options)
    finally:
        server.remove()

    assert (error.published, error.batches) == (10, 1)
    assert str(error).startswith(f"Redis at localhost:{server.port} cannot be reached")
    assert "it is not known whether the current batch was published" in str(error)
    assert "a retry is safe" in str(error)
    assert not error.is_permanent
    assert PASSWORD not in str(error)
    assert isinstance(error.__cause__, PublishUnknownError)


# ---------------------------------------------------------------------- what is shown


class Lines:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, event: str, *args: Any) -> None:
        self.lines.append(event % args)


def publisher(queue: RedisMessageQueue, log: Lines, progress_interval_seconds: float) -> Publisher:
    reader = Reader(enumerate([{"note": "CANARY"}] * 25, start=1), str, None, 10)
    return Publisher(queue, reader, log, progress_interval_seconds)


def test_progress_is_told_in_counts(queue: RedisMessageQueue) -> None:
    every, rare = Lines(), Lines()
    publisher(queue, every, 0).run(batch_size=10, headers=None)
    publisher(queue, rare, 3600).run(batch_size=10, headers=None)

    reported = [line.split(", in ")[0] for line in every.lines]
    assert reported == [
        f"queue {queue.name!r}, so far: 10 published, 0 duplicates refused, 0 dropped",
        f"queue {queue.name!r}, so far: 20 published, 0 duplicates refused, 0 dropped",
        f"queue {queue.name!r}, so far: 25 published, 0 duplicates refused, 0 dropped",
        f"queue {queue.name!r}, done: 25 published, 0 duplicates refused, 0 dropped",
    ]
    assert len(rare.lines) == 1


def test_the_operator_logs_neither_payload_nor_password(
    password_server: PasswordServer,
    connect: Connect,
    queue_name: str,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    connect(host="localhost", port=password_server.port, password=PASSWORD)

    with caplog.at_level(logging.DEBUG):
        report = publish(queue_name, messages=[{"note": "CANARY"}], progress_interval_seconds=0)

    shown = "".join([json.dumps(report), caplog.text, *capfd.readouterr()])
    assert "1 published" in shown
    assert "CANARY" not in shown
    assert PASSWORD not in shown
