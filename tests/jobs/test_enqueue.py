"""An enqueue stores a job under an id, or says what is wrong with it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sluicegate.errors import ConfigurationError, QueueBackpressureError
from sluicegate.jobs import JobKind
from tests.support.jobs import MakeJobs

PAYLOAD = {"kind": "email", "recipient": "alice@example.com", "tags": ["a", {"b": None}]}


def test_a_job_waits_with_its_payload_and_its_kind(jobs: Any) -> None:
    begun = datetime.now(UTC) - timedelta(seconds=5)
    job = jobs.get(jobs.enqueue(PAYLOAD))
    assert (job.status, job.attempts, job.kind, job.payload) == ("waiting", 0, "email", PAYLOAD)
    assert begun < job.enqueued_at < begun + timedelta(seconds=60)
    assert (job.claimed_at, job.ended_at, job.worker, job.lease_id, job.last_error) == (None, None, None, None, None)
    assert (job.progress, job.note, job.stored_result, job.cancel_requested) == (None, "", None, False)


@pytest.mark.parametrize(
    ("payload", "kind", "expected"),
    [
        ({"n": 1}, None, "default"),
        ([1, 2], None, "default"),
        ({"kind": "video"}, None, "video"),
        ({"kind": "video"}, "audio", "audio"),
        ({"kind": None}, None, "default"),
        ([1, 2], "für alle", "für alle"),
    ],
)
def test_the_kind_is_given_or_the_payloads(jobs: Any, payload: Any, kind: str | None, expected: str) -> None:
    made = jobs.enqueue(payload, kind=kind)
    assert jobs.get(made).kind == expected
    (claimed,) = jobs.claim_jobs().jobs
    assert (claimed.id, claimed.kind, claimed.payload) == (made, expected, payload)


def test_many_jobs_have_an_id_and_a_kind_each(jobs: Any) -> None:
    payloads = [{"kind": ["email", "video", "email"][number % 3], "n": number} for number in range(2500)]
    report = jobs.enqueue_many(payloads)
    assert (len(report), report.accepted, len(set(report.ids)), report.duplicates) == (2500, 2500, 2500, 0)
    found = jobs.get_many(report.ids)
    assert list(found) == report.ids
    assert [(job.payload, job.kind) for job in found.values()] == [(one, one["kind"]) for one in payloads]


@pytest.mark.parametrize(
    ("payloads", "calls"), [([{"n": number} for number in range(1000)], 3), ([{"text": "x" * 200_000}] * 10, 5)]
)
def test_a_call_has_fewer_jobs_than_messages(jobs: Any, payloads: list[Any], calls: int) -> None:
    """The payload of a job is recorded too, so that a job takes Redis longer."""
    report = jobs.enqueue_many(payloads)
    assert report.accepted == len(payloads)
    assert len({one.rpartition("-")[0] for one in report.ids}) == calls


def test_a_duplicate_is_answered_with_the_job_that_holds_the_key(make_jobs: MakeJobs) -> None:
    jobs = make_jobs(get_deduplication_key="n")
    first = jobs.enqueue({"n": 1})
    assert jobs.enqueue({"n": 1}) == first
    report = jobs.enqueue_many([{"n": 2}, {"n": 1}, {"n": 2}])
    assert (report.accepted, report.duplicates) == (1, 2)
    assert report.ids[1:] == [first, report.ids[0]]
    assert jobs.stats().enqueued_jobs == 2


def test_a_key_that_is_held_until_the_end_is_free_after_it(make_jobs: MakeJobs) -> None:
    jobs = make_jobs(get_deduplication_key="n", deduplication_policy="until_acked")
    first = jobs.enqueue({"n": 1})
    with jobs.claim_jobs() as lease:
        assert jobs.enqueue({"n": 1}) == first
        lease.jobs[0].complete({"ok": True})
    second = jobs.enqueue({"n": 1})
    assert second != first
    assert jobs.get(first).stored_result == {"ok": True}
    assert [job.id for job in jobs.list("waiting")] == [second]


def test_a_delayed_job_cannot_be_claimed_yet(jobs: Any) -> None:
    later = jobs.enqueue({"n": 1}, delay_seconds=600)
    due = jobs.enqueue({"n": 2}, due_at=datetime.now(UTC) + timedelta(days=1))
    now = jobs.enqueue({"n": 3}, due_at=datetime.now(UTC) - timedelta(days=1))
    assert [jobs.get(one).status for one in (later, due, now)] == ["delayed", "delayed", "waiting"]
    assert [job.id for job in jobs.list("delayed")] == [later, due]
    assert [job.id for job in jobs.claim_jobs(10).jobs] == [now]


@pytest.mark.parametrize(
    ("payload", "where"),
    [({"a": {"b": {1, 2}}}, r"\$\.a\.b"), ([1, float("nan")], r"\$\[1\]"), ({"a": 2**70}, r"\$\.a")],
)
def test_a_payload_that_json_cannot_carry_is_refused_with_its_path(jobs: Any, payload: Any, where: str) -> None:
    with pytest.raises((TypeError, ValueError), match=where):
        jobs.enqueue(payload)
    assert jobs.depth().ready == 0


@pytest.mark.parametrize("payload", ["text", b"bytes", 5, None])
def test_a_payload_that_is_no_dict_or_list_is_refused(jobs: Any, payload: Any) -> None:
    with pytest.raises(TypeError, match="dict or a list"):
        jobs.enqueue(payload)


@pytest.mark.parametrize("kind", ["", " ", "a\x1fb", "x" * 201, 5, "\ud800"])
def test_a_kind_that_cannot_work_is_refused(jobs: Any, kind: Any) -> None:
    with pytest.raises(ConfigurationError, match="kind"):
        jobs.enqueue({"n": 1}, kind=kind)
    with pytest.raises(ConfigurationError, match="field `kind` of job 1"):
        jobs.enqueue_many([{"n": 1}, {"kind": kind}])
    assert jobs.depth().ready == 0


def test_the_header_of_the_kind_is_the_librarys(jobs: Any) -> None:
    with pytest.raises(ConfigurationError, match="kind="):
        jobs.enqueue({"n": 1}, headers={"kind": "email"})
    jobs.enqueue({"n": 1}, kind="email", headers={"trace": "t1"})
    (claimed,) = jobs.claim_jobs().jobs
    assert (claimed.kind, claimed.headers) == ("email", {"kind": "email", "trace": "t1"})


def test_a_full_queue_refuses_or_takes_what_fits(make_jobs: MakeJobs) -> None:
    jobs = make_jobs(max_pending_length=2)
    with pytest.raises(QueueBackpressureError):
        jobs.enqueue_many([{"n": number} for number in range(3)])
    report = jobs.enqueue_many([{"n": number} for number in range(3)], partial=True)
    assert (report.accepted, report.refused_positions) == (2, [2])
    assert list(jobs.get_many(report.ids)) == report.ids[:2]


@pytest.mark.parametrize("option", ["visibility_timeout_seconds", "max_delivery_count", "retry_backoff"])
def test_what_a_kind_sets_is_no_option_of_the_queue(make_jobs: MakeJobs, option: str) -> None:
    with pytest.raises(ConfigurationError, match="per kind"):
        make_jobs(**{option: None})


@pytest.mark.parametrize(
    "options",
    [
        {"kinds": {"email": 3}},
        {"kinds": [JobKind()]},
        {"kinds": {" ": JobKind()}},
        {"default_kind": None},
        {"kinds": {"email": {"max_tries": 1}}},
        {"result_ttl_seconds": 0},
        {"max_ended": 0},
        {"max_result_bytes": 0},
        {"worker": " "},
        {"max_jobs": 5},
    ],
    ids=str,
)
def test_an_option_that_cannot_work_is_refused(make_jobs: MakeJobs, options: Any) -> None:
    with pytest.raises(ConfigurationError):
        make_jobs(**options)


@pytest.mark.parametrize(
    "values",
    [{"max_attempts": 0}, {"max_attempts": 5000}, {"visibility_timeout_seconds": None}, {"retry_backoff": 5}],
    ids=str,
)
def test_a_kind_that_cannot_work_is_refused_when_it_is_made(values: Any) -> None:
    with pytest.raises(ConfigurationError):
        JobKind(**values)
