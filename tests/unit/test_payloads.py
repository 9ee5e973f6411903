"""What can be published: dict and list as JSON, str and bytes as they are, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate import errors
from sluicegate.core.deduplication import compile_key_function
from sluicegate.core.keys import QueueKeys
from sluicegate.core.ledger import VerdictGroup
from sluicegate.core.payload_limits import PayloadLimits
from sluicegate.core.publishing import MAX_BYTES_PER_CALL, Publishing, call_ranges, encode_payload
from sluicegate.core.transitions.claim import Opened
from sluicegate.core.transitions.publish import Batch, publish_call
from sluicegate.core.transitions.scan import Cursor, Page, Target
from sluicegate.errors import PayloadTooLargeError
from tests.support.batches import one_call


class Row(dict):  # type: ignore[type-arg]
    pass


@pytest.mark.parametrize(
    ("payload", "stored"),
    [
        ({"a": 1}, b'{"a":1}'),
        ([1, (2, 3)], b"[1,[2,3]]"),
        (Row(a=1), b'{"a":1}'),
        ("Zoë", "Zoë".encode()),
        ("", b""),
        (b"\xff\x00", b"\xff\x00"),
        (bytearray(b"x"), b"x"),
        (memoryview(b"xyz")[1:], b"yz"),
    ],
)
def test_payloads(payload: Any, stored: bytes) -> None:
    assert encode_payload(payload) == stored


@pytest.mark.parametrize("payload", [None, 7, 1.5, True, (1, 2), {1, 2}, object(), iter([1])])
def test_anything_else_is_a_type_error_naming_the_path(payload: Any) -> None:
    with pytest.raises(TypeError, match=r"at \$"):
        encode_payload(payload)


def test_text_that_utf8_cannot_carry() -> None:
    with pytest.raises(ValueError, match=r"lone surrogate at \$"):
        encode_payload("\ud800")


class Source:
    """Payloads of some sizes, read one by one."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes
        self.read = 0

    def __iter__(self) -> Iterator[bytes]:
        for size in self.sizes:
            self.read += 1
            yield b"x" * size


def cut_into_calls(source: Iterable[Any], **options: Any) -> Iterator[Batch]:
    publishing = Publishing(QueueKeys("orders"), None, 3600, 120)
    for batch in publishing.batches(source, new_id=lambda: b"b" * 16, **options):
        assert isinstance(batch, Batch)
        yield batch


def test_calls_are_read_as_they_are_asked_for() -> None:
    source = Source(*[1] * 5)
    made = cut_into_calls(source, most=2)
    assert len(next(made).parts) == 2
    assert source.read == 2
    assert [(batch.first, len(batch.parts)) for batch in made] == [(2, 2), (4, 1)]


MB = 1024 * 1024


def test_a_call_ends_at_four_megabytes_and_no_more_than_one_message_is_read_beyond_it() -> None:
    source = Source(*[3 * MB // 2] * 6)
    made = cut_into_calls(source)
    for calls_made in (1, 2, 3):
        batch = next(made)
        assert (batch.first, len(batch.parts)) == (2 * calls_made - 2, 2)
        assert source.read <= 2 * calls_made + 1
        assert sum(map(len, batch.parts)) <= MAX_BYTES_PER_CALL


def test_a_message_larger_than_a_call_goes_alone() -> None:
    sizes = [10, 20 * MB, 10, 10, 8 * MB, 9 * MB, 10]
    made = list(cut_into_calls(Source(*sizes)))
    assert [(batch.first, len(batch.parts)) for batch in made] == [(0, 1), (1, 1), (2, 2), (4, 1), (5, 1), (6, 1)]


@given(st.lists(st.integers(0, 4 * MB) | st.integers(0, 20 * MB) | st.integers(0, 9), max_size=40), st.integers(1, 9))
def test_ranges_by_size_are_whole_in_order_and_as_long_as_they_may_be(sizes: list[int], most: int) -> None:
    ranges = list(call_ranges(sizes, most))
    assert [at for first, end in ranges for at in range(first, end)] == list(range(len(sizes)))
    for first, end in ranges:
        fits = end - first <= most and sum(sizes[first:end]) <= MAX_BYTES_PER_CALL
        assert fits or end - first == 1
        if end < len(sizes):
            assert end - first == most or sum(sizes[first : end + 1]) > MAX_BYTES_PER_CALL


def test_a_payload_that_cannot_be_stored_never_reaches_the_key_function() -> None:
    asked: list[Any] = []
    publishing = Publishing(
        QueueKeys("orders"), compile_key_function(lambda payload: str(asked.append(payload))), 3600, 120
    )
    for payload in (42, None, 3.5, True, object(), {"a": {1}}, {"a": float("nan")}, "\ud800"):
        with pytest.raises((TypeError, ValueError), match="payload"):
            next(publishing.batches([payload], new_id=lambda: b"b"))
    assert asked == []


def test_a_payload_beyond_the_limit_is_told_with_its_position() -> None:
    publishing = Publishing(QueueKeys("orders"), None, 3600, 120, limits=PayloadLimits(max_payload_bytes=3))
    made = publishing.batches(["abc"] * 5 + ["abcd"], new_id=lambda: b"b", most=2)
    assert len(list(islice(made, 2))) == 2
    with pytest.raises(PayloadTooLargeError) as caught:
        next(made)
    assert (caught.value.position, caught.value.size, caught.value.limit) == (5, 4, 3)


def test_every_exception_ends_in_error_and_has_one_parent() -> None:
    for name in errors.__all__:
        kind = getattr(errors, name)
        assert name.endswith("Error")
        assert issubclass(kind, errors.RedisMessageQueueError)
        assert kind.__doc__


def test_payloads_stay_out_of_reprs() -> None:
    keys = QueueKeys("orders")
    batch = one_call(Publishing(keys, lambda _: "hush", 3600, 120), b"b" * 16, ["hush"], {"trace": "hush"})
    shown = [
        batch,
        publish_call(keys, batch, age_seconds=0),
        Opened(b"1-1", 0, [], [b"hush"]),
        VerdictGroup("nack", "1", why=b"hush"),
        Target(b"hush"),
        Page(0, 0, 0, 1, True, Cursor(), [(0, b"hush")]),
    ]
    for one in shown[:1] + shown[2:]:
        assert "hush" not in repr(one)
    call = repr(shown[1])
    assert "hush" not in call, "names of keys hold no deduplication keys"
