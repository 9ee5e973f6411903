"""What one claim asks for, checked before Redis is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sluicegate import checks
from sluicegate._lease_values import OnBatchError
from sluicegate._session import QueueSession, new_id
from sluicegate.core.bounds import MAX_CLAIM_LIMIT
from sluicegate.core.transitions.claim import ClaimRequest
from sluicegate.errors import ConfigurationError, OptionTypeError

__all__ = ["Claim"]

_MIN_RETENTION_SECONDS = 3600.0
_EMPTY_REMEMBERED_SECONDS = 600.0
_AT_MOST_ONCE_LEASE_SECONDS = 60.0  # from the claim to the ack that follows at once


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim as its caller asked for it; see `RedisMessageQueue.claim`.

    Attributes:
        request: what Redis is asked.
        lease_id: the lease's id, given by the caller or made by the library.
        is_named: whether the caller gave the id, so that a retry may ask for the lease's record.
        on_batch_error: what becomes of messages already yielded when the block raises.
        heartbeat: whether the block extends the lease in the background.
    """

    request: ClaimRequest
    lease_id: str
    is_named: bool
    on_batch_error: OnBatchError = "release"
    heartbeat: bool = True

    @classmethod
    def of(
        cls,
        session: QueueSession[Any],
        limit: int,
        *,
        lease_seconds: float | None,
        wait_seconds: float,
        lease_id: str | None,
        take_over_after_seconds: float | None,
        retention_seconds: float | None,
        remember_empty: bool,
        heartbeat: bool,
        on_batch_error: OnBatchError,
        exclude_run: str | None,
    ) -> Claim:
        """Check the arguments of a claim.

        Raises:
            ConfigurationError: an argument that cannot work.
        """
        if lease_seconds is None:
            lease_seconds = session.config.visibility_timeout_seconds or _AT_MOST_ONCE_LEASE_SECONDS
        checks.count("limit", limit, MAX_CLAIM_LIMIT)
        checks.positive("lease_seconds", lease_seconds)
        checks.not_negative("wait_seconds", wait_seconds)
        if lease_id is None and (take_over_after_seconds is not None or remember_empty):
            raise ConfigurationError(
                "take_over_after_seconds and remember_empty need a lease_id that a retry would use again"
            )
        if take_over_after_seconds is not None:
            checks.not_negative("take_over_after_seconds", take_over_after_seconds)
        if retention_seconds is not None:
            checks.not_negative("retention_seconds", retention_seconds)
        if on_batch_error not in ("release", "ack"):
            raise ConfigurationError(f"on_batch_error must be 'release' or 'ack', not {on_batch_error!r}")
        if exclude_run is not None and not isinstance(exclude_run, str):
            raise OptionTypeError(f"exclude_run must be the name of a run or None, not {exclude_run!r}")
        nonce = new_id()
        named = lease_id is not None
        lease_id = lease_id if lease_id is not None else nonce.decode()
        request = ClaimRequest(
            name=session.keys.lease_name(lease_id),
            nonce=nonce,
            limit=limit,
            lease_seconds=lease_seconds,
            keep_seconds=max(retention_seconds or 0, _MIN_RETENTION_SECONDS, 10 * lease_seconds),
            empty_seconds=_EMPTY_REMEMBERED_SECONDS if remember_empty else 0,
            run=b"" if exclude_run is None else session.keys.run(exclude_run),
        )
        return cls(request, lease_id, named, on_batch_error, heartbeat)
