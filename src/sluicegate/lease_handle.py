"""A lease handle: what another process or task needs to continue with an open lease, as plain text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from sluicegate import checks
from sluicegate.core import json
from sluicegate.errors import ConfigurationError

__all__ = ["LeaseHandle"]


@dataclass(frozen=True, slots=True)
class LeaseHandle:
    """A detached lease, for `queue.attach`: `lease.detach()` makes it, and JSON carries it.

    It holds no payload and no password. Whoever has it and may use the queue in Redis can settle or extend this one
    opening of this one lease, and nothing else.

    Attributes:
        queue: name of the queue.
        id: the lease's id.
        token: proves to Redis that its holder holds this opening.
        lease_seconds: the lease's life without an extension.
    """

    queue: str
    id: str
    token: str = field(repr=False)
    lease_seconds: float

    def __post_init__(self) -> None:
        for name in ("queue", "id", "token"):
            if not isinstance(getattr(self, name), str):
                raise ConfigurationError(f"{name} of a lease handle is a str, as lease.detach() makes it")
        nonce, colon, opening = self.token.partition(":")
        if not (nonce and colon and opening):
            raise ConfigurationError("the token of a lease handle is not one that lease.detach() made")
        checks.positive("lease_seconds", self.lease_seconds)

    @property
    def nonce(self) -> bytes:
        """Return the nonce of the claim, or of the takeover, that holds the lease."""
        return self.token.partition(":")[0].encode()

    @property
    def opening(self) -> str:
        """Return which opening of the id this is, as `lease.opening` does."""
        return self.token.partition(":")[2]

    def to_dict(self) -> dict[str, str]:
        """Return the handle as plain texts, for an XCom or a message."""
        return {
            "queue": self.queue,
            "id": self.id,
            "token": self.token,
            "lease_seconds": repr(float(self.lease_seconds)),
        }

    def to_json(self) -> str:
        """Return the handle as JSON text."""
        return json.dumps(self.to_dict()).decode()

    @classmethod
    def from_dict(cls, values: Mapping[str, str]) -> LeaseHandle:
        """Read a handle from plain texts.

        Raises:
            ConfigurationError: something is missing or unknown, or no handle has such values.
        """
        known = [one.name for one in fields(cls)]
        if not isinstance(values, Mapping) or set(values) != set(known):
            raise ConfigurationError(f"a lease handle has exactly {', '.join(known)}, as lease.detach() makes it")
        try:
            seconds = float(values["lease_seconds"])
        except (TypeError, ValueError):
            raise ConfigurationError("lease_seconds of a lease handle is a number of seconds as text") from None
        return cls(values["queue"], values["id"], values["token"], seconds)

    @classmethod
    def from_json(cls, text: str | bytes) -> LeaseHandle:
        """Read a handle from JSON text.

        Raises:
            ConfigurationError: it is not JSON, or no handle.
        """
        try:
            values = json.loads(text)
        except ValueError as error:
            raise ConfigurationError(f"a lease handle is JSON as handle.to_json() makes it: {error}") from None
        return cls.from_dict(values)
