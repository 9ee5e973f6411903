"""What the commands that serve something share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sluicegate.errors import ConfigurationError
from sluicegate.extras import extra_needed

if TYPE_CHECKING:
    from sluicegate.cli.context import Cli
    from sluicegate.cli.places import Target
    from sluicegate.gateway import RedisGateway

__all__ = ["check_address", "needs_extra", "one_redis"]


@contextmanager
def needs_extra(name: str) -> Iterator[None]:
    """Say which extra of the package a command needs, if an import in the block fails.

    Raises:
        ConfigurationError: a library is missing.
    """
    try:
        with extra_needed(name, "this command"):
            yield
    except ModuleNotFoundError as error:
        if (error.name or "sluicegate").partition(".")[0] == "sluicegate":
            raise
        raise ConfigurationError(str(error)) from None


def one_redis(cli: Cli, targets: Sequence[Target]) -> RedisGateway:
    """Return the gateway that all places are reached by; without places, that of the settings.

    Raises:
        ConfigurationError: the places are on several servers.
    """
    gateways = {id(target.gateway): target.gateway for target in targets}
    if len(gateways) > 1:
        raise ConfigurationError("the places are on several Redis; serve each Redis by a command of its own")
    return next(iter(gateways.values()), None) or cli.gateway()


def check_address(host: str, port: int) -> None:
    """Refuse an address that cannot be listened at, before anything says that it is served there.

    Raises:
        ConfigurationError: the port is in use, or this machine has no such address.
    """
    import socket

    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        reason = str(error.strerror).partition(" (while attempting")[0]  # what the standard library adds
        raise ConfigurationError(
            f"cannot listen at {host} port {port} ({reason}); give another --host or --port"
        ) from None
