"""What can be published: dict and list as JSON, str and bytes as they are, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from sluicegate import errors
from sluicegate.core import admin_calls, calls, replies
from sluicegate.core.keys import QueueKeys
from sluicegate.core.publishing import Publishing, chunks, encode_payload
from sluicegate.core.values import VerdictGroup


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


def test_chunks_read_as_they_are_needed() -> None:
    read = []

    def source() -> Any:
        for number in range(5):
            read.append(number)
            yield number

    made = chunks(source(), 2)
    assert next(made) == [0, 1]
    assert read == [0, 1]
    assert list(made) == [[2, 3], [4]]


def test_every_exception_ends_in_error_and_has_one_parent() -> None:
    for name in errors.__all__:
        kind = getattr(errors, name)
        assert name.endswith("Error")
        assert issubclass(kind, errors.RedisMessageQueueError)
        assert kind.__doc__


def test_payloads_stay_out_of_reprs() -> None:
    keys = QueueKeys("orders")
    batch = Publishing(keys, lambda _: "hush", 3600, 120).batch(b"b" * 16, ["hush"], {"trace": "hush"})
    shown = [
        batch,
        calls.publish(keys, batch, age_seconds=0),
        replies.Opened(b"1-1", 0, [], [b"hush"]),
        VerdictGroup("nack", "1", why=b"hush"),
        admin_calls.Named(b"hush"),
        admin_calls.Page(0, 0, 0, 1, True, admin_calls.Cursor(), [(0, b"hush")]),
    ]
    for one in shown[:1] + shown[2:]:
        assert "hush" not in repr(one)
    call = repr(shown[1])
    assert call.count("hush") == call.count(":dedup:hush") == 1, "but for the names of keys"
