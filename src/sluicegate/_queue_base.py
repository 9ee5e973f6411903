"""The part of a queue without I/O, shared by the sync and the asyncio side: from arguments to requests."""

from __future__ import annotations

import os
import weakref
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from types import SimpleNamespace
from typing import Any, Generic, TypeAlias, TypeVar

from sluicegate import checks
from sluicegate._lease_base import LeaseBase, OnBatchError
from sluicegate._redis.connection import Address
from sluicegate.config import QueueConfig, QueueSpec
from sluicegate.core.deduplication import compile_key_function
from sluicegate.core.eviction import Eviction
from sluicegate.core.keys import QueueKeys
from sluicegate.core.payload_limits import PayloadLimits
from sluicegate.core.publishing import Batches, Payload, Publishing
from sluicegate.core.values import Batch, ClaimRequest
from sluicegate.errors import (
    ConfigurationError,
    GatewayContractError,
    OptionTypeError,
    QueueDrainedError,
    RedisMessageQueueError,
)

__all__ = ["ABSENT", "Absent", "Handler", "QueueBase", "new_id", "refuse_unfit_gateway"]

Handler: TypeAlias = Callable[[str], object] | Callable[[bytes], object]
"""Gets a payload: str when the client has `decode_responses=True`, else bytes. In the asyncio queue also async."""


class Absent(Enum):
    """An argument that was not given, where None could be one."""

    ABSENT = "absent"


ABSENT = Absent.ABSENT
L = TypeVar("L", bound=LeaseBase)
MAX_CLAIM_LIMIT = 10_000
_SHORTEST_RETENTION_SECONDS = 3600.0
_EMPTY_REMEMBERED_SECONDS = 600.0
_AT_MOST_ONCE_LEASE_SECONDS = 60.0  # from the claim to the ack that follows at once
_PEEKABLE = ("pending", "returned", "delayed", "in_flight", "dead", "completed", "failed", "set_aside")


class QueueBase(Generic[L]):
    """Names, options and requests of one queue object, and the leases that it holds."""

    def __init__(self, name: str, config: QueueConfig, retry_seconds: float, *, awaits: bool) -> None:
        if not awaits:
            config.refuse_async()
        self.name = name
        self._keys = QueueKeys(name)
        self._config = config
        self._rules = config.rules
        source = config.get_deduplication_key
        self._publishing = Publishing(
            self._keys,
            compile_key_function(source, awaits=awaits) if source is not None else None,
            config.deduplication_window_seconds,
            retry_seconds,
            policy=config.deduplication_policy,
            max_pending_length=config.max_pending_length or 0,
            overload=config.pending_overload_policy,
            limits=PayloadLimits(config.strict_payload_types, config.max_payload_bytes, config.max_payload_depth),
            sort_keys=config.sort_keys,
        )
        self._eviction = Eviction(self._keys, config.require_noeviction)
        self._publishes = True
        self._drained = False
        self._publishers: dict[object, int] = {}  # a publish under way -> who is at it
        self._leases: dict[int, weakref.ref[L]] = {}

    @property
    def key(self) -> SimpleNamespace:
        """Names of this queue's keys, for people with `redis-cli`."""
        names = ("pending", "returned", "delayed", "leases", "dead", "completed", "failed", "counters")
        return SimpleNamespace(**{name: getattr(self._keys, name).decode() for name in names})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @staticmethod
    def _locate(error: RedisMessageQueueError, batch: Batch) -> None:
        """Name the message of a call that published one; those of several have ids, where any were used."""
        if len(batch.parts) == 1:
            error.locate(message_id=batch.message_ids()[0], position=batch.first)

    def _stopping(self) -> bool:
        """Whether this object takes and publishes no more: it was drained, or its interrupt handler says so."""
        interrupt = self._config.interrupt
        return self._drained or (interrupt is not None and interrupt.is_interrupted())

    def _refuse_closed(self) -> None:
        """Before anything is published."""
        if self._drained:
            raise QueueDrainedError(f"queue {self.name!r} was drained here; make a new object to publish")
        if not self._publishes:
            raise ConfigurationError(
                f"queue {self.name!r} came from a spec, and its deduplication key is a callable, which cannot "
                f"travel; use a template"
            )

    @staticmethod
    def _one_payload(payload: Payload | Absent, message: Payload | Absent) -> Payload:
        """The payload, by whichever of its two names it was given.

        Raises:
            TypeError: under none of them, or under both.
        """
        if isinstance(payload, Absent):
            if isinstance(message, Absent):
                raise TypeError("publish() needs a payload: publish({'order_id': 7})")
            return message
        if not isinstance(message, Absent):
            raise TypeError("publish() was given payload and message, two names for the same; give one of them")
        return payload

    def _batches(self, payloads: Iterable[Any], headers: Mapping[str, str] | None, **options: Any) -> Batches:
        """One call's worth of messages after the other; the options are those of `Publishing.batches`."""
        return self._publishing.batches(payloads, headers, new_id=new_id, **options)

    def _claim_request(
        self,
        limit: int,
        lease_seconds: float | None,
        wait_seconds: float,
        lease_id: str | None,
        take_over_after_seconds: float | None,
        retention_seconds: float | None,
        remember_empty: bool,
        on_batch_error: OnBatchError,
        exclude_run: str | None = None,
    ) -> ClaimRequest:
        if exclude_run is not None and not isinstance(exclude_run, str):
            raise OptionTypeError(f"exclude_run must be the name of a run or None, not {exclude_run!r}")
        if lease_seconds is None:
            lease_seconds = self._config.visibility_timeout_seconds or _AT_MOST_ONCE_LEASE_SECONDS
        _check_claim(limit, lease_seconds, wait_seconds, lease_id, take_over_after_seconds, remember_empty)
        if retention_seconds is not None:
            checks.not_negative("retention_seconds", retention_seconds)
        if on_batch_error not in ("release", "ack"):
            raise ConfigurationError(f"on_batch_error must be 'release' or 'ack', not {on_batch_error!r}")
        nonce = new_id()
        return ClaimRequest(
            name=self._keys.lease_name(lease_id if lease_id is not None else nonce.decode()),
            nonce=nonce,
            limit=limit,
            lease_seconds=lease_seconds,
            keep_seconds=max(retention_seconds or 0, _SHORTEST_RETENTION_SECONDS, 10 * lease_seconds),
            empty_seconds=_EMPTY_REMEMBERED_SECONDS if remember_empty else 0,
            run=b"" if exclude_run is None else self._keys.run(exclude_run),
        )

    def _received(self, payload: bytes, decodes: bool) -> Any:
        """A payload as handlers get it: str or bytes, which no checker can tell."""
        if not decodes:
            return payload
        try:
            return payload.decode()
        except UnicodeDecodeError:
            return payload

    def _hold(self, lease: L) -> None:
        """Remember a lease for `drain` and `close`, for as long as somebody refers to it."""
        leases, number = self._leases, id(lease)
        leases[number] = weakref.ref(lease, lambda _: leases.pop(number, None))

    def _held(self) -> list[L]:
        """Leases of this object that are open, as far as it knows."""
        leases = [reference() for reference in list(self._leases.values())]
        return [lease for lease in leases if lease is not None and lease.holds]

    @contextmanager
    def _publishing_by(self, who: int) -> Iterator[None]:
        """Let `drain` know of a publish: entered before it is checked whether the queue was drained."""
        publish = object()
        self._publishers[publish] = who
        try:
            yield
        finally:
            del self._publishers[publish]

    def _others_at_work(self, me: int) -> bool:
        """Whether anybody else publishes or holds messages."""
        return any(who != me for who in list(self._publishers.values())) or any(
            lease.holder != me for lease in self._held()
        )

    def _spec(self, address: Address | None) -> QueueSpec:
        if address is None:
            raise ConfigurationError(
                f"queue {self.name!r} was made from a client, which cannot travel; make it from a URL"
            )
        return QueueSpec(self.name, address.portable_url(), self._config.portable())

    @staticmethod
    def _ids(ids: Iterable[str] | None) -> tuple[str, ...] | None:
        """Message ids as given, one text refused."""
        if isinstance(ids, str):
            raise TypeError("ids must be several message ids, such as a list; put the one id into a list")
        return None if ids is None else tuple(ids)

    @staticmethod
    def _check_peek(count: int, state: str, offset: int = 0) -> None:
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


def new_id() -> bytes:
    """Sixteen characters nobody else makes."""
    return urlsafe_b64encode(os.urandom(12)).replace(b"-", b".")


def _check_claim(
    limit: int,
    lease_seconds: float,
    wait_seconds: float,
    lease_id: str | None,
    take_over_after_seconds: float | None,
    remember_empty: bool,
) -> None:
    checks.count("limit", limit, MAX_CLAIM_LIMIT)
    checks.positive("lease_seconds", lease_seconds)
    checks.not_negative("wait_seconds", wait_seconds)
    if lease_id is None and (take_over_after_seconds is not None or remember_empty):
        raise ConfigurationError(
            "take_over_after_seconds and remember_empty need a lease_id that a retry would use again"
        )
    if take_over_after_seconds is not None:
        checks.not_negative("take_over_after_seconds", take_over_after_seconds)
