"""Batches of messages that are encoded already, and the fields that a key is made of."""

from __future__ import annotations

import pytest

from sluicegate.core.deduplication import key_fields
from sluicegate.core.entry import client_part
from sluicegate.core.keys import QueueKeys
from sluicegate.core.publishing import Publishing
from sluicegate.errors import ConfigurationError

KEYS = QueueKeys("q")


def publishing(**options: object) -> Publishing:
    return Publishing(KEYS, lambda payload: payload["k"], 3600, 120, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{}, {"policy": "until_acked"}, {"max_pending_length": 5}])
def test_encoded_messages_make_the_batch_that_their_payloads_make(options: dict[str, object]) -> None:
    publish = publishing(**options)
    (made,) = publish.batches([{"k": "a"}, {"k": "b:"}], {"h": "1"}, new_id=lambda: b"B")
    parts = [
        client_part(b"", key, b'{"h":"1"}', b'{"k":"%s"}' % text) for key, text in ((b"a", b"a"), (b"b%3A", b"b:"))
    ]
    assert publish.batch_of_parts(b"B", parts, [b"a", b"b%3A"]) == made


def test_a_receipt_is_kept_as_long_as_asked_and_answers_for_that_long() -> None:
    publish = publishing()
    kept = publish.batch_of_parts(b"B", [b"p"], [b"m"], receipt_seconds=90_000)
    assert (kept.receipt_seconds, kept.oldest_seconds) == (90_000, 81_000)
    assert publish.batch_of_parts(b"B", [b"p"], [b"m"]).receipt_seconds == 0, "the marker answers"
    assert publish.batch_of_parts(b"B", [b"p"], [], receipt_seconds=1).receipt_seconds == 600, "the shortest"


@pytest.mark.parametrize(
    ("source", "fields"),
    [("id", ["id"]), ("a.b", ["a.b"]), (["x", "y.z"], ["x", "y.z"]), ("{a}:{b.c}-{{}}{a}", ["a", "b.c", "a"])],
)
def test_the_fields_of_a_key(source: str | list[str], fields: list[str]) -> None:
    assert key_fields(source) == fields


def test_a_template_that_cannot_work_has_no_fields() -> None:
    with pytest.raises(ConfigurationError, match="not a dotted path"):
        key_fields("{a!r}")
