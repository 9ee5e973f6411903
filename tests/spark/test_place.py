"""Options that name a stream and a group, in every way that they may, and the refusal of every other way."""

from __future__ import annotations

import pytest

from sluicegate import ConsumerGroup, QueueSpec, RedisMessageQueue, RedisStreamQueue
from sluicegate.errors import ConfigurationError
from sluicegate.jobs import RedisJobQueue
from sluicegate.spark._options import BrowseOptions, StreamOptions, WriteOptions, options

URL = "redis://localhost:6379/0"
PLACE_URL = "redis+sluicegate://localhost:6379/0"
STREAM = RedisStreamQueue("orders", url=URL)
BILLING = QueueSpec("orders", URL, {}, "group", "billing")
Parsed = type[BrowseOptions] | type[StreamOptions] | type[WriteOptions]


def named(parsed: Parsed, **given: str) -> QueueSpec:
    """Return what the options of one use name."""
    more = {"consumer": "etl"} if parsed is StreamOptions else {}
    return QueueSpec.from_json(parsed.parse({**given, **more}).spec)


@pytest.mark.parametrize("parsed", [BrowseOptions, StreamOptions])
@pytest.mark.parametrize(
    "given",
    [
        {"url": URL, "stream": "orders", "group": "billing"},
        {"URL": URL, "Stream": "orders", "GROUP": "billing"},
        {"url": f"{PLACE_URL}?stream=orders&group=billing"},
        {"url": f"{PLACE_URL}?stream=orders", "group": "billing"},
        {"spec": BILLING.to_json()},
        options(STREAM.group("billing")),
    ],
)
def test_a_group_is_named_by_options_by_a_url_and_by_its_spec(parsed: Parsed, given: dict[str, str]) -> None:
    assert named(parsed, **given) == BILLING


@pytest.mark.parametrize(
    "given",
    [{"url": URL, "stream": "orders"}, {"url": f"{PLACE_URL}?stream=orders"}, options(STREAM)],
)
def test_a_write_names_the_stream_alone(given: dict[str, str]) -> None:
    assert named(WriteOptions, **given) == QueueSpec("orders", URL, {}, "stream")


@pytest.mark.parametrize("parsed", [BrowseOptions, StreamOptions, WriteOptions])
def test_a_url_may_name_a_queue_too(parsed: Parsed) -> None:
    assert named(parsed, url=f"{PLACE_URL}?queue=orders") == QueueSpec("orders", URL, {})


def test_the_options_of_a_group_bring_its_own_options_along() -> None:
    group = STREAM.group("billing", max_delivery_count=3)

    assert named(BrowseOptions, **options(group)).options == {"max_delivery_count": 3}
    given = {"url": URL, "stream": "orders", "group": "billing", "maxDeliveryCount": "4"}
    assert named(BrowseOptions, **given).options == {"max_delivery_count": 4}


@pytest.mark.parametrize(
    ("parsed", "given", "reported"),
    [
        (BrowseOptions, {"url": URL, "queue": "a", "stream": "b", "group": "g"}, "queue and stream exclude each other"),
        (WriteOptions, {"url": URL, "queue": "a", "stream": "b"}, "queue and stream exclude each other"),
        (BrowseOptions, {"url": URL, "queue": "a", "group": "g"}, "give the option stream instead of queue"),
        (BrowseOptions, {"url": URL, "group": "g"}, r"needs the option queue: .*option\('stream', 'name'\)"),
        (BrowseOptions, {"stream": "a", "group": "g"}, "needs the option url:"),
        (BrowseOptions, {"url": URL, "stream": "a"}, "spark.read consumes from a group, .*give the option group"),
        (StreamOptions, {"url": URL, "stream": "a"}, "spark.readStream consumes from a group, .*give the option group"),
        (StreamOptions, options(STREAM), r"spark\.options\(stream\.group\('name'\)\)"),
        (WriteOptions, {"url": URL, "stream": "a", "group": "g"}, "group 'g' has no effect; leave the option"),
        (WriteOptions, {"spec": BILLING.to_json()}, r"a write publishes .*options\(stream\)\) with the stream itself"),
        (WriteOptions, {"url": URL, "stream": "a", "maxDeliveryCount": "3"}, "a stream without a group has none"),
        (BrowseOptions, {"url": f"{PLACE_URL}?stream=a&group=g", "stream": "a"}, "url names group 'g' of stream 'a'"),
        (BrowseOptions, {"url": f"{PLACE_URL}?stream=a&group=g", "group": "h"}, "url names group 'g' of stream 'a'"),
        (WriteOptions, {"url": f"{PLACE_URL}?queue=a", "stream": "a"}, "option url names queue 'a' already"),
        (WriteOptions, {"url": PLACE_URL}, "exactly one of queue and stream"),
        (BrowseOptions, {"spec": BILLING.to_json(), "group": "h"}, "option spec names .*; leave group out"),
    ],
)  # fmt: skip
def test_every_other_way_is_refused_with_the_way_out(parsed: Parsed, given: dict[str, str], reported: str) -> None:
    with pytest.raises(ConfigurationError, match=reported):
        named(parsed, **given)


@pytest.mark.parametrize("url", ["redis://user:s3cret@host/0", "redis+sluicegate://user:s3cret@host/0?stream=orders"])
def test_a_password_is_refused_for_a_stream_too(url: str) -> None:
    given = {"url": url, "group": "billing"} | ({} if "+sluicegate" in url else {"stream": "orders"})
    with pytest.raises(ConfigurationError, match=r"\?password_env=NAME") as caught:
        named(BrowseOptions, **given)
    assert "s3cret" not in str(caught.value)


def test_jobs_are_read_and_not_written_as_messages() -> None:
    given = options(RedisJobQueue("mails", url=URL))

    assert named(BrowseOptions, **given).kind == "jobs"
    with pytest.raises(ConfigurationError, match=r"enqueue jobs with RedisJobQueue\.enqueue_many"):
        named(WriteOptions, **given)


def test_what_is_neither_a_queue_nor_a_stream_has_no_options() -> None:
    assert isinstance(STREAM.group("billing"), ConsumerGroup)
    with pytest.raises(TypeError, match="must be a queue, a stream or a group of a stream, not a str"):
        options("orders")  # type: ignore[arg-type]
    assert set(options(RedisMessageQueue("orders", url=URL))) == {"spec"}
