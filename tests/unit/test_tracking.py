"""The records of batches and jobs are read as the scripts write them, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.core.tracking import (
    JobRecord,
    JobState,
    Progress,
    batch_fields,
    batch_member,
    batch_name,
    batch_of,
    job_field,
    job_member,
)
from sluicegate.errors import ConfigurationError, MalformedStoredMessageError, OptionTypeError


@given(st.text(min_size=1, max_size=60), st.text(min_size=1, max_size=60))
def test_different_batches_have_different_names_that_messages_name_again(one: str, other: str) -> None:
    name = batch_name(one)
    assert batch_of(name + b":3-14") == name
    assert len(name) <= 40
    assert (name == batch_name(other)) == (one == other)


def test_a_message_without_a_batch_names_none() -> None:
    assert batch_of(b"aBcDeF-3") == b""


@pytest.mark.parametrize(("bad", "error"), [("", "empty"), ("x" * 1001, "1001 characters"), ("\ud800", "surrogate")])
def test_an_id_that_no_batch_may_have_is_refused(bad: str, error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        batch_name(bad)


def test_an_id_of_another_type_is_refused() -> None:
    with pytest.raises(OptionTypeError, match="not int"):
        batch_name(3)  # type: ignore[arg-type]


def test_fields_and_members_are_named_as_the_scripts_name_them() -> None:
    assert batch_fields(b"load")[:2] == [b"b:load:total", b"b:load:delayed"]
    assert batch_member(b"load") == b"b:load"
    assert (job_field(b"s", b"a-1"), job_member(b"a-1")) == (b"s:a-1", b"j:a-1")


def test_the_record_of_a_job_keeps_any_payload() -> None:
    record = JobRecord("email", 17, b"\x1fpay\x1fload")
    assert JobRecord.decode(record.encode()) == record


def test_the_state_of_a_job() -> None:
    raw = b"failed\x1f3\x1f1000\x1f2000\x1flease%3A1\x1fworker 1\x1f0123\x1fValueError\x1fbad\x1fnews"
    expected = JobState("failed", 3, 1000, 2000, "lease:1", "worker 1", "0123", "ValueError", "bad\x1fnews")
    assert JobState.decode(raw) == expected
    assert expected.is_ended
    assert JobState.decode(None) == JobState("waiting")
    assert not JobState("running").is_ended


def test_the_progress_of_a_job_comes_back() -> None:
    progress = Progress(0.25, 1700, "half of\x1fit")
    assert Progress.decode(progress.encode()) == progress


@pytest.mark.parametrize("raw", [b"", b"email", b"a\x1fb\x1fc"])
def test_other_values_are_refused(raw: bytes) -> None:
    for read in (JobRecord.decode, JobState.decode, Progress.decode):
        with pytest.raises(MalformedStoredMessageError):
            read(raw)
