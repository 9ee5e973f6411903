"""The layout of stored messages: what is put in comes out, and the payload may hold anything."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sluicegate import DeadMessage, Message
from sluicegate.core.entry import (
    PREFIX_LENGTH,
    Prefix,
    bound_keys,
    client_part,
    encode_deduplication_key,
    encode_headers,
    is_entry,
    is_tracked,
    read_prefix,
    split_entry,
)
from sluicegate.core.policies import backoff_seconds, why
from sluicegate.errors import MalformedStoredMessageError

PREFIX = b"1" + b"00000000001c" + b"0199f3c2b1a4" + b"00a" + b"2"
TEXT = st.text(max_size=20)


@given(
    st.from_regex(rb"\A[A-Za-z0-9_.=]{1,24}-[0-9]{1,3}\Z"),
    TEXT,
    st.dictionaries(TEXT, TEXT, max_size=3),
    st.binary(max_size=60),
)
@example(b"b-0", "a:b%{}\x1f", {"\x1f": "\x1f"}, b"\x1f\x1f")
def test_round_trip(message_id: bytes, key: str, headers: dict[str, str], payload: bytes) -> None:
    entry = PREFIX + client_part(message_id, encode_deduplication_key(key), encode_headers(headers), payload)
    assert is_entry(entry)
    assert split_entry(entry)[3] == payload
    message = Message(entry, deliveries_begun=1)
    assert (message.id, message.payload) == (message_id.decode(), payload)
    assert message.deduplication_key == (key or None)
    assert message.headers == headers
    assert (message.sequence, message.delivery_count) == (28, 11)
    assert message.enqueued_at == datetime.fromtimestamp(0x0199F3C2B1A4 / 1000, UTC)
    assert message.size == len(entry)


def test_the_prefix_is_read_by_position() -> None:
    assert len(PREFIX) == PREFIX_LENGTH
    assert read_prefix(PREFIX + b"b-0\x1f\x1f\x1f") == Prefix(28, 0x0199F3C2B1A4, 10, 2)


@pytest.mark.parametrize("kind", [b"1", b"2", b"5", b"6", b"7", b"8"])
def test_every_kind_is_read_alike(kind: bytes) -> None:
    entry = kind + PREFIX[1:] + client_part(b"b:0-0", b"key", b"", b"x")
    assert is_entry(entry)
    assert read_prefix(entry) == Prefix(28, 0x0199F3C2B1A4, 10, 2)
    assert is_tracked(entry) is (kind in (b"5", b"6", b"7", b"8"))
    assert bound_keys([(1, entry)]) == (((1, b"key"),) if kind in (b"2", b"6", b"8") else ())


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"hello",
        b"4" + PREFIX[1:] + b"i\x1f\x1f\x1f",
        b"3" + PREFIX[1:] + b"i\x1f\x1f\x1f",
        b"1" + b"x" * 40,
        PREFIX[:20],
    ],
)
def test_foreign_values_are_named_as_such(value: bytes) -> None:
    assert not is_entry(value)
    with pytest.raises(MalformedStoredMessageError):
        read_prefix(value)


@pytest.mark.parametrize("value", [PREFIX, PREFIX + b"id", PREFIX + b"id\x1f\x1f"])
def test_a_value_without_all_fields_is_no_entry(value: bytes) -> None:
    assert not is_entry(value)
    with pytest.raises(MalformedStoredMessageError):
        split_entry(value)


@pytest.mark.parametrize("headers", [{"a": 1}, {1: "a"}, {"a": None}])
def test_headers_map_text_to_text(headers: dict[str, str]) -> None:
    with pytest.raises(TypeError, match="must map a str to a str"):
        encode_headers(headers)


def test_no_headers_take_no_room() -> None:
    assert encode_headers(None) == encode_headers({}) == b""


def test_a_message_shows_neither_payload_nor_key() -> None:
    entry = PREFIX + client_part(b"b-0", b"secret-key", b'{"h":"secret"}', b"secret")
    assert repr(Message(entry)) == "Message(id='b-0', delivery_count=10)"
    assert "secret" not in repr(DeadMessage.from_record(b"1000\x1freason\x1fE\x1fsecret\x1f" + entry))


def test_a_dead_record_is_read() -> None:
    entry = PREFIX + client_part(b"b-0", b"", b"", b"\x1fpay\x1fload")
    dead = DeadMessage.from_record(b"1500\x1f" + why("spoilt", ValueError("bad\x1fnews")) + b"\x1f" + entry)
    assert dead.message is not None
    assert (dead.message.id, dead.message.payload, dead.value) == ("b-0", b"\x1fpay\x1fload", entry)
    assert (dead.reason, dead.error_type, dead.error) == ("spoilt", "ValueError", "bad news")
    assert dead.buried_at == datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)


def test_a_foreign_value_is_kept_as_it_was() -> None:
    dead = DeadMessage.from_record(b"0\x1fforeign\x1f\x1f\x1fany\x1fthing")
    assert (dead.message, dead.value, dead.reason) == (None, b"any\x1fthing", "foreign")


def test_a_message_buried_as_foreign_by_its_handler_is_still_a_message() -> None:
    entry = PREFIX + client_part(b"b-0", b"", b"", b"x")
    dead = DeadMessage.from_record(b"0\x1fforeign\x1f\x1f\x1f" + entry)
    assert dead.message is not None
    assert dead.message.id == "b-0"


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (None, b"r\x1f\x1f"),
        ("plain text", b"r\x1f\x1fplain text"),
        (KeyError("k"), b"r\x1fKeyError\x1f'k'"),
        ("lone \ud800", b"r\x1f\x1flone ?"),
        ("x" * 5000, b"r\x1f\x1f" + b"x" * 1999 + "…".encode()),
    ],
)
def test_why_keeps_reason_and_error(error: BaseException | str | None, kept: bytes) -> None:
    assert why("r", error) == kept


def test_backoff_grows_and_is_bounded() -> None:
    from sluicegate.core.policies import DEFAULT_BACKOFF

    for deliveries, least in ((0, 1), (1, 1), (2, 2), (5, 16), (9, 256)):
        assert least <= backoff_seconds(DEFAULT_BACKOFF, deliveries) <= least + 1
    assert backoff_seconds(DEFAULT_BACKOFF, 4000) == 300
