"""What a command works with: the settings, the gateways to Redis, and the output."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from sluicegate.cli.output import Output, print_error

if TYPE_CHECKING:
    from sluicegate.cli.settings import Settings
    from sluicegate.gateway import RedisGateway

__all__ = ["Cli"]

# A person waits for the answer, and a script may call again.
_RETRY_SECONDS = 5.0


class Cli:
    """One call of `sluicegate`.

    Args:
        url: of the option `--url`.
        config: of the option `--config`.
        as_json: whether `--json` is given.

    Attributes:
        output: prints what the command found.
    """

    def __init__(self, *, url: str | None = None, config: Path | None = None, as_json: bool = False) -> None:
        self.output = Output(as_json=as_json)
        self._url = url
        self._config = config
        self._gateways: dict[tuple[str, float], RedisGateway] = {}

    @cached_property
    def settings(self) -> Settings:
        """Return the settings, which are read at the first use."""
        from sluicegate.cli.settings import Settings

        return Settings.load(self._url, self._config)

    def gateway(self, url: str | None = None, *, retry_budget_seconds: float = _RETRY_SECONDS) -> RedisGateway:
        """Return a gateway; calls with the same arguments share one.

        Args:
            url: of the Redis, None for the one of the settings.
            retry_budget_seconds: how long a call is retried.
        """
        from sluicegate.gateway import RedisGateway

        where = url or self.settings.url
        key = (where, retry_budget_seconds)
        if key not in self._gateways:
            self._gateways[key] = RedisGateway(url=where, retry_budget_seconds=retry_budget_seconds)
        return self._gateways[key]

    def fail(self, error: Exception) -> None:
        """Print an error of a command that continues, or that has printed what it did before."""
        print_error(str(error), type(error).__name__, as_json=self.output.as_json)

    def close(self) -> None:
        """Close the gateways."""
        for gateway in self._gateways.values():
            gateway.close()
