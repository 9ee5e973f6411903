"""Options of the data source: texts in any case, and every mistake named."""

from __future__ import annotations

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from sluicegate import QueueSpec, RedisMessageQueue
from sluicegate.errors import ConfigurationError
from sluicegate.spark._options import BrowseOptions, StreamOptions, WriteOptions, options, queue_of

PLACE = {"url": "redis://localhost:6379/0", "queue": "orders"}
SPEC = RedisMessageQueue("orders", url=PLACE["url"]).spec().to_json()
STREAM = {"spec": SPEC, "consumer": "etl"}
Parsed = type[BrowseOptions] | type[StreamOptions] | type[WriteOptions]


def test_defaults() -> None:
    assert BrowseOptions.parse(PLACE) == BrowseOptions(SPEC, "pending", 100_000, None, None)
    assert StreamOptions.parse({**PLACE, "consumer": "etl"}) == StreamOptions(
        SPEC, "etl", 100_000, None, 600, 1, None, True
    )
    assert WriteOptions.parse(PLACE) == WriteOptions(SPEC)
    assert (WriteOptions(SPEC).write_mode, WriteOptions(SPEC).batch_size) == ("direct", 1000)


def test_names_and_words_in_any_case() -> None:
    raw = {"SPEC": SPEC, "Consumer": "ETL", "maxmessagespertrigger": "7", "FAILONDATALOSS": "False"}
    found = StreamOptions.parse(raw)
    assert (found.consumer, found.max_messages_per_trigger, found.fail_on_data_loss) == ("ETL", 7, False)
    assert BrowseOptions.parse({**PLACE, "State": "Dead"}).state == "dead"


def test_as_spark_hands_them_over() -> None:
    given = CaseInsensitiveDict()
    for name, text in {**STREAM, "leaseSeconds": " 90.5 ", "pollWaitSeconds": "0", "numPartitions": "3"}.items():
        given[name] = text
    found = StreamOptions.parse(given)
    assert (found.lease_seconds, found.poll_wait_seconds, found.num_partitions) == (90.5, 0, 3)


def test_the_options_of_a_queue_bring_its_own_options_along() -> None:
    queue = RedisMessageQueue("orders", url=PLACE["url"], max_delivery_count=3, get_deduplication_key=lambda p: "k")
    given = options(queue)
    assert set(given) == {"spec"}
    found = BrowseOptions.parse(given)
    assert QueueSpec.from_json(found.spec).options == {"max_delivery_count": 3, "publishes": False}
    assert queue_of(found.spec).name == "orders"


def test_the_delivery_cap_beside_a_url() -> None:
    assert QueueSpec.from_json(BrowseOptions.parse({**PLACE, "maxDeliveryCount": "4"}).spec).options == {
        "max_delivery_count": 4
    }
    none = BrowseOptions.parse({**PLACE, "maxDeliveryCount": "none"})
    assert QueueSpec.from_json(none.spec).options == {"max_delivery_count": None}


def test_what_spark_adds_is_no_mistake() -> None:
    added = {"checkpointLocation": "/somewhere", "queryName": "q", "path": "p"}
    assert WriteOptions.parse({**PLACE, **added}) == WriteOptions.parse(PLACE)


@pytest.mark.parametrize("parsed", [BrowseOptions, StreamOptions, WriteOptions])
def test_a_password_in_a_url_is_refused_and_not_shown(parsed: Parsed) -> None:
    for url in ("redis://user:s3cret@host/0", "redis://host/0?password=s3cret"):
        with pytest.raises(ConfigurationError, match=r"\?password_env=NAME") as caught:
            parsed.parse({"url": url, "queue": "orders", "consumer": "etl"} if parsed is StreamOptions else
                         {"url": url, "queue": "orders"})  # fmt: skip
        assert "s3cret" not in str(caught.value)
        spec = QueueSpec("orders", url, {}).to_json()
        with pytest.raises(ConfigurationError, match=r"\?password_env=NAME") as caught:
            parsed.parse({"spec": spec, "consumer": "etl"} if parsed is StreamOptions else {"spec": spec})
        assert "s3cret" not in str(caught.value)


def test_a_password_by_reference_travels_as_such() -> None:
    found = BrowseOptions.parse({"url": "redis://user@host/0?password_env=ORDERS", "queue": "orders"})
    assert QueueSpec.from_json(found.spec).url == "redis://user@host/0?password_env=ORDERS"


@pytest.mark.parametrize(
    ("parsed", "raw", "reported"),
    [
        (StreamOptions, {"maxMessagePerTrigger": "5"}, r"'maxmessagepertrigger'.*; did you mean maxMessagesPerTri"),
        (StreamOptions, {"bogus": "5"}, r"spark\.readStream has no option 'bogus'; there are spec, .*consumer"),
        (BrowseOptions, {"consumer": "etl"}, r"spark\.read has no option 'consumer'; there are .*state, limit"),
        (WriteOptions, {"limit": "1"}, r"a write has no option 'limit'; there are .*payloadColumn"),
        (BrowseOptions, {"limit": "many"}, r"option limit must be a whole number from 1 to \d+, not 'many'"),
        (BrowseOptions, {"limit": "0"}, "option limit must be a whole number"),
        (BrowseOptions, {"limit": "9" * 30}, "option limit must be a whole number"),
        (BrowseOptions, {"limit": "\uff11"}, "option limit must be a whole number"),
        (BrowseOptions, {"state": "lost"}, "option state must be one of pending, returned, .*, not 'lost'"),
        (StreamOptions, {"failOnDataLoss": "no"}, "option failOnDataLoss must be one of true, false, not 'no'"),
        (StreamOptions, {"leaseSeconds": "0.5"}, r"option leaseSeconds must be seconds from 1 to .*, not '0\.5'"),
        (StreamOptions, {"leaseSeconds": "nan"}, "option leaseSeconds must be seconds"),
        (StreamOptions, {"pollWaitSeconds": "61"}, "option pollWaitSeconds must be seconds from 0 to 60"),
        (StreamOptions, {"pollWaitSeconds": "soon"}, "option pollWaitSeconds must be seconds"),
        (StreamOptions, {"consumer": "x" * 201}, "option consumer must take 200 bytes at most, not 201"),
        (StreamOptions, {"consumer": "\ud800"}, "option consumer holds a lone surrogate"),
        (StreamOptions, {"consumer": " "}, "needs the option consumer"),
        (WriteOptions, {"deduplicationKey": "{a}", "deduplicationKeyColumn": "a"}, "not both"),
        (WriteOptions, {"writeMode": "fast"}, "option writeMode must be one of direct, staged"),
        (WriteOptions, {"batchSize": "1001"}, "option batchSize must be a whole number from 1 to 1000"),
    ],
)  # fmt: skip
def test_mistakes_are_named(parsed: Parsed, raw: dict[str, str], reported: str) -> None:
    base = {**PLACE, "consumer": "etl"} if parsed is StreamOptions else PLACE
    parsed.parse(base)
    with pytest.raises(ConfigurationError, match=reported):
        parsed.parse({**base, **raw})


def test_an_option_of_ours_is_not_told_among_the_users() -> None:
    with pytest.raises(ConfigurationError) as caught:
        BrowseOptions.parse({**PLACE, "nonsense": "1"})
    assert "manifest" not in str(caught.value)


@pytest.mark.parametrize(
    ("raw", "reported"),
    [
        ({}, r"needs the option url and queue: .*options\(\*\*sluicegate\.spark\.options\(queue\)\)"),
        ({"url": "redis://localhost"}, "needs the option queue:"),
        ({"queue": "orders"}, "needs the option url:"),
        ({"spec": SPEC, "queue": "orders"}, "option spec names the queue whole"),
        ({"spec": "{"}, "a queue spec is JSON as"),
        ({"spec": "[1]"}, "a queue spec is a JSON object"),
        ({"spec": '{"name":"o","url":"redis://h","options":{"colour":1}}'}, r"does not know the options \['colour'\]"),
        ({"url": "http://localhost", "queue": "orders"}, "url scheme 'http' is not known"),
    ],
)
def test_a_queue_that_is_not_named_is_told(raw: dict[str, str], reported: str) -> None:
    with pytest.raises(ConfigurationError, match=reported):
        BrowseOptions.parse(raw)


def test_a_queue_that_acks_before_it_hands_over_has_no_stream() -> None:
    queue = RedisMessageQueue("orders", url=PLACE["url"], visibility_timeout_seconds=None, max_delivery_count=None)
    BrowseOptions.parse(options(queue))
    with pytest.raises(ConfigurationError, match="visibility_timeout_seconds=None"):
        StreamOptions.parse({**options(queue), "consumer": "etl"})
