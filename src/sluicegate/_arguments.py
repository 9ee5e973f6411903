"""The arguments of the queue's methods, checked before Redis is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, TypeAlias

from sluicegate import checks
from sluicegate._lease_base import Claim, OnBatchError
from sluicegate._session import QueueSession, new_id
from sluicegate.core.bounds import MAX_CLAIM_LIMIT
from sluicegate.core.publishing import Payload
from sluicegate.core.transitions.claim import ClaimRequest
from sluicegate.errors import ConfigurationError, GatewayContractError, OptionTypeError

__all__ = ["ABSENT", "Absent", "Handler", "check_peek", "claim_of", "ids_of", "one_payload", "refuse_unfit_gateway"]

Handler: TypeAlias = Callable[[str], object] | Callable[[bytes], object]
"""Gets a payload: str when the client has `decode_responses=True`, else bytes. In the asyncio queue also async."""


class Absent(Enum):
    """An argument that was not given, where None could be one."""

    ABSENT = "absent"


ABSENT = Absent.ABSENT
_MIN_RETENTION_SECONDS = 3600.0
_EMPTY_REMEMBERED_SECONDS = 600.0
_AT_MOST_ONCE_LEASE_SECONDS = 60.0  # from the claim to the ack that follows at once
_PEEKABLE = ("pending", "returned", "delayed", "in_flight", "dead", "completed", "failed", "set_aside")


def claim_of(
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
    nonce: bytes | None = None,
) -> Claim:
    """Check the arguments of a claim; with the `nonce` of an earlier one it is that claim's repeat.

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
    nonce = nonce or new_id()
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
        consumer=session.consumer,
    )
    return Claim(request, lease_id, named, on_batch_error, heartbeat)


def one_payload(payload: Payload | Absent, message: Payload | Absent) -> Payload:
    """Return the payload, by whichever of its two names it was given.

    Raises:
        TypeError: it was given by neither name, or by both.
    """
    if isinstance(payload, Absent):
        if isinstance(message, Absent):
            raise TypeError("publish() needs a payload: publish({'order_id': 7})")
        return message
    if not isinstance(message, Absent):
        raise TypeError("publish() was given payload and message, two names for the same; give one of them")
    return payload


def ids_of(ids: Iterable[str] | None) -> tuple[str, ...] | None:
    """Message ids as given.

    Raises:
        TypeError: a single text, which would be read as many ids.
    """
    if isinstance(ids, str):
        raise TypeError("ids must be several message ids, such as a list; put the one id into a list")
    return None if ids is None else tuple(ids)


def check_peek(count: int, state: str, offset: int) -> None:
    """Check the arguments of `peek`.

    Raises:
        ConfigurationError: one that cannot work.
    """
    if state not in _PEEKABLE:
        raise ConfigurationError(f"state must be one of {', '.join(_PEEKABLE)}, not {state!r}")
    checks.count("count", count)
    checks.count("offset", offset, least=0)


def refuse_unfit_gateway(gateway: object, methods: Iterable[str]) -> None:
    """Refuse a plugged-in gateway that lacks something of the protocol.

    Raises:
        GatewayContractError: names what is missing.
        ConfigurationError: a retry budget that cannot work.
    """
    members = (*methods, "server", "address", "decodes_responses", "retry_budget_seconds")
    missing = [name for name in members if not hasattr(gateway, name)]
    missing += [name for name in methods if name not in missing and not callable(getattr(gateway, name))]
    if missing:
        raise GatewayContractError(
            f"gateway is a {type(gateway).__name__} without {', '.join(missing)}; implement the Gateway protocol and "
            "try it with sluicegate.testing.gateways"
        )
    checks.not_negative("retry_budget_seconds of the gateway", getattr(gateway, "retry_budget_seconds", None))
