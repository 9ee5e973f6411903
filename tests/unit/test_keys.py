"""Names of keys: any queue name, lease id and deduplication key works, and different ones never share a key."""

from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from sluicegate.core.entry import encode_deduplication_key
from sluicegate.core.keys import GroupKeys, QueueKeys, StreamKeys, decode_name, encode_name
from sluicegate.core.marker_chain import field_of
from sluicegate.errors import ConfigurationError

STRANGE = "{}:%# \x00\x1f\x7f\tä😀ab25"
NAMES = st.text(st.sampled_from(STRANGE), min_size=1, max_size=8) | st.text(min_size=1, max_size=60)
ROOT = b"sluicegate:{orders}:"
LONG = st.builds(lambda head, n, tail: head + "x" * n + tail, NAMES, st.integers(0, 150), NAMES)


def marker(key: str) -> bytes:
    return field_of(encode_deduplication_key(key))


def bucket(keys: QueueKeys) -> bytes:
    return keys.markers.locate([b"k"]).buckets[0]


@given(NAMES)
def test_a_name_comes_back(name: str) -> None:
    encoded = encode_name(name)
    assert decode_name(encoded) == name
    assert not re.search(r"[{}:\x00-\x1f\x7f]", encoded)


@given(NAMES, NAMES)
@example("x", "{x}")
@example("%7B", "{")
@example("a:b", "a%3Ab")
def test_different_names_are_different_queues(one: str, other: str) -> None:
    assume(one.strip() and other.strip())
    assert (QueueKeys(one).pending == QueueKeys(other).pending) == (one == other)


@given(NAMES)
@example("{}")
@example("}{")
@example(":pending")
def test_all_keys_of_a_queue_have_its_hash_tag(name: str) -> None:
    assume(name.strip())
    keys = QueueKeys(name)
    tag = b"sluicegate:{" + encode_name(name).encode() + b"}:"
    fixed = [
        getattr(keys, part) for part in keys.__slots__ if part not in {"name", "markers"} and not part.startswith("_")
    ]
    made = [keys.lease(b"l"), keys.closed(b"l"), bucket(keys), keys.published(b"b")]
    for key in [*fixed, *made]:
        assert key.startswith(tag)
        assert key[key.index(b"{") + 1 : key.index(b"}")] == encode_name(name).encode() != b""
    assert len({*fixed, *made}) == len(fixed) + len(made)


@pytest.mark.parametrize("name", ["", " ", "\t\n"])
def test_a_blank_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="blank"):
        QueueKeys(name)


@pytest.mark.parametrize("name", [None, b"orders", 7])
def test_a_name_is_a_str(name: object) -> None:
    with pytest.raises(TypeError, match="must be a str"):
        QueueKeys(name)  # type: ignore[arg-type]


def test_lone_surrogates_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="lone surrogate"):
        QueueKeys("\ud800")
    with pytest.raises(ConfigurationError, match="lone surrogate"):
        QueueKeys.lease_name("\ud800")
    with pytest.raises(ConfigurationError, match="lone surrogate"):
        encode_deduplication_key("\ud800")


@given(LONG | NAMES)
def test_lease_and_deduplication_names_are_bounded(name: str) -> None:
    assert len(QueueKeys.lease_name(name)) <= 42
    assert len(marker(name)) <= 128


@given(LONG | NAMES, LONG | NAMES)
def test_lease_and_deduplication_names_are_injective(one: str, other: str) -> None:
    assert (QueueKeys.lease_name(one) == QueueKeys.lease_name(other)) == (one == other)
    assert (marker(one) == marker(other)) == (one == other)


def test_nobody_can_name_a_hash() -> None:
    long = "x" * 200
    hashed = QueueKeys.lease_name(long)
    assert hashed.startswith(b"#")
    assert QueueKeys.lease_name(hashed.decode()) != hashed
    assert QueueKeys.lease_name("%23" + hashed[1:].decode()) != QueueKeys.lease_name(hashed.decode())
    assert marker(long) == b":" + hashlib.sha256(long.encode()).hexdigest().encode()
    assert marker(marker(long).decode()) != marker(long)
    assert QueueKeys.lease_name(long) == b"#" + hashlib.sha256(long.encode()).hexdigest()[:39].encode()


def test_short_names_stay_readable() -> None:
    assert QueueKeys.lease_name("run-7/part 3") == b"run-7/part 3"
    assert marker("acme/7") == b"acme/7"


def test_an_empty_lease_id_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="empty"):
        QueueKeys.lease_name("")
    with pytest.raises(TypeError, match="must be a str"):
        QueueKeys.lease_name(7)  # type: ignore[arg-type]


def _all_keys(keys: QueueKeys) -> dict[str, bytes]:
    """Return every key that these keys name, by what it is for."""
    slots = [slot for kind in type(keys).__mro__ for slot in getattr(kind, "__slots__", ())]
    fixed = {
        slot: getattr(keys, slot)
        for slot in slots
        if slot not in {"name", "group", "markers"} and not slot.startswith("_")
    }
    made = {"lease": keys.lease(b"l"), "closed": keys.closed(b"l"), "published": keys.published(b"b")}
    return {**fixed, **made, "markers": bucket(keys), "consumer": keys.consumer("c"), "run": keys.run("r")}


@given(NAMES, NAMES)
@example("orders", "stream")
@example("orders", "{}")
def test_a_stream_and_its_groups_share_the_tag_of_a_queue_of_that_name_and_no_key(name: str, group: str) -> None:
    assume(name.strip() and group.strip())
    tag = b"sluicegate:{" + encode_name(name).encode() + b"}:"
    queue, stream, one = _all_keys(QueueKeys(name)), _all_keys(StreamKeys(name)), _all_keys(GroupKeys(name, group))
    assert all(key.startswith(tag) for key in (*stream.values(), *one.values()))
    assert not set(queue.values()) & (set(stream.values()) | set(one.values()))
    shared = {name for name, key in one.items() if key in stream.values()}
    assert shared == {"stream", "pending", "groups", "markers", "stream_counters"}
    assert one["stream_counters"] == stream["counters"]
    assert one["markers"] == stream["markers"]


@given(NAMES, NAMES)
def test_different_groups_share_only_what_is_the_streams(one: str, other: str) -> None:
    assume(one.strip() and other.strip())
    assert (GroupKeys("orders", one).leases == GroupKeys("orders", other).leases) == (one == other)


def test_the_keys_of_a_group_are_readable() -> None:
    keys = StreamKeys("orders").of_group("billing:eu")
    assert (keys.name, keys.group) == ("orders", "billing:eu")
    assert keys.pending == keys.stream == b"sluicegate:{orders}:stream"
    assert keys.returned == b"sluicegate:{orders}:group:billing%3Aeu:returned"
    assert keys.lease(b"l") == b"sluicegate:{orders}:group:billing%3Aeu:lease:l"
    assert bucket(keys) == b"sluicegate:{orders}:stream:markers:1:0"
    assert (QueueKeys("orders").group, StreamKeys("orders").group) == ("", "")


@pytest.mark.parametrize(("name", "group", "which"), [(" ", "g", "stream"), ("s", "\t", "group")])
def test_a_blank_name_of_a_stream_or_group_is_refused(name: str, group: str, which: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{which} name is blank"):
        GroupKeys(name, group)
