"""The part of a queue without I/O, the same for threads and for asyncio."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from types import SimpleNamespace
from typing import Generic, TypeAlias, TypeVar

from sluicegate import checks
from sluicegate._session import QueueSession
from sluicegate.core.publishing import Payload
from sluicegate.errors import ConfigurationError, GatewayContractError

__all__ = ["ABSENT", "Absent", "Handler", "QueueBase", "check_peek", "ids_of", "one_payload", "refuse_unfit_gateway"]

Handler: TypeAlias = Callable[[str], object] | Callable[[bytes], object]
"""Gets a payload: str when the client has `decode_responses=True`, else bytes. In the asyncio queue also async."""


class Absent(Enum):
    """An argument that was not given, where None could be one."""

    ABSENT = "absent"


ABSENT = Absent.ABSENT
R = TypeVar("R")
_PEEKABLE = ("pending", "returned", "delayed", "in_flight", "dead", "completed", "failed", "set_aside")


class QueueBase(Generic[R]):
    """The names of one queue object.

    Attributes:
        name: the queue's name.
        session: what the parts of the queue share. Internal: this distribution's adapters use it, and it may change.
    """

    def __init__(self, session: QueueSession[R]) -> None:
        self.name = session.keys.name
        self.session = session

    @property
    def key(self) -> SimpleNamespace:
        """The names of this queue's Redis keys, for use with `redis-cli`."""
        names = ("pending", "returned", "delayed", "leases", "dead", "completed", "failed", "counters")
        return SimpleNamespace(**{name: getattr(self.session.keys, name).decode() for name in names})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


def one_payload(payload: Payload | Absent, message: Payload | Absent) -> Payload:
    """The payload, by whichever of its two names it was given.

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
