"""What the commands that serve something share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sluicegate.errors import ConfigurationError

if TYPE_CHECKING:
    from sluicegate.cli.context import Cli
    from sluicegate.cli.places import Target
    from sluicegate.gateway import RedisGateway

__all__ = ["needs_extra", "one_redis"]


@contextmanager
def needs_extra(name: str) -> Iterator[None]:
    """Say which extra of the package a command needs, if an import in the block fails.

    Raises:
        ConfigurationError: a library is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "sluicegate"):
            raise
        raise ConfigurationError(
            f"this command needs {missing}, which is not installed: pip install 'sluicegate[{name}]'"
        ) from None


def one_redis(cli: Cli, targets: Sequence[Target]) -> RedisGateway:
    """Return the gateway that all places are reached by; without places, that of the settings.

    Raises:
        ConfigurationError: the places are on several servers.
    """
    gateways = {id(target.gateway): target.gateway for target in targets}
    if len(gateways) > 1:
        raise ConfigurationError("the places are on several Redis; serve each Redis by a command of its own")
    return next(iter(gateways.values()), None) or cli.gateway()
