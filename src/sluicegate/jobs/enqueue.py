"""How jobs become the messages of a publish. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from sluicegate.core.bounds import SEPARATOR
from sluicegate.core.deduplication import PendingKey
from sluicegate.core.publishing import Batches
from sluicegate.errors import ConfigurationError
from sluicegate.jobs.kind import NO_KIND, checked_kind

__all__ = ["MAX_JOBS_PER_CALL", "MAX_JOB_BYTES_PER_CALL", "JobKindNames", "job_batches", "job_headers"]

MAX_JOBS_PER_CALL = 400
"""A job takes Redis longer than a message, because its payload is recorded too."""
MAX_JOB_BYTES_PER_CALL = 512 * 1024

# Kinds of entries: those of jobs, without and with a deduplication marker that is freed as they end, in a batch or not.
_KINDS = {b"1": b"7", b"2": b"8", b"5": b"7", b"6": b"8"}


def job_headers(kind: str | None, headers: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return the headers of jobs: their own, and the kind if it was given.

    Raises:
        ConfigurationError: a kind that cannot work, or a header in the kind's place.
    """
    if headers and "kind" in headers:
        raise ConfigurationError("the header `kind` is the library's; give the kind of the jobs as kind=")
    if kind is None:
        return dict(headers) if headers else None
    return {**(headers or {}), "kind": checked_kind(kind, "kind")}


class JobKindNames:
    """Notes the kind of each job while its payload is read for a publish.

    Args:
        payloads: of the jobs: dicts or lists.
        kind: of all of them; None for the field `kind` of each payload.
    """

    def __init__(self, payloads: Iterable[Any], kind: str | None) -> None:
        self._payloads = payloads
        self._kind = kind
        self._names: deque[str] = deque()
        self._position = 0

    def __iter__(self) -> Iterator[Any]:
        for payload in self._payloads:
            if not isinstance(payload, (dict, list)):
                raise TypeError(
                    f"the payload of job {self._position} is a {type(payload).__name__} at $; enqueue a dict or a list"
                )
            if self._kind is None:
                found = payload.get("kind") if isinstance(payload, dict) else None
                name = NO_KIND if found is None else checked_kind(found, f"the field `kind` of job {self._position}")
                self._names.append(name)
            self._position += 1
            yield payload

    def take(self, count: int) -> bytes:
        """Return the kinds of the next jobs, as a publish sends them: one for all, or one of each."""
        if self._kind is not None:
            return self._kind.encode()
        names = [self._names.popleft() for _ in range(count)]
        return (names[0] if len(set(names)) == 1 else SEPARATOR.decode().join(names)).encode()


def job_batches(batches: Batches, kinds: JobKindNames) -> Batches:
    """Yield the batches of a publish as jobs of these kinds."""
    made = next(batches, None)
    while made is not None:
        if isinstance(made, PendingKey):
            try:
                key = yield made
            except Exception as error:  # noqa: BLE001  (the inner generator adds the position, and raises it)
                made = batches.throw(error)
            else:
                made = batches.send(key)
            continue
        yield replace(made, kind=_KINDS[made.kind], job_kinds=kinds.take(len(made.parts)))
        made = next(batches, None)
