"""Keeps what was found on a Redis, and looks again in the background, so that callers do not wait for a scan."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from sluicegate import checks
from sluicegate.clock import elapsed_clock
from sluicegate.errors import RedisMessageQueueError
from sluicegate.gateway import RedisGateway
from sluicegate.survey.found import FoundPlace, find_places

__all__ = ["PlaceDirectory"]

_log = logging.getLogger("sluicegate")


class PlaceDirectory:
    """The places on a Redis as the last scan found them.

    The first call of `places` scans. Later calls answer at once; when the last scan is older than `refresh_seconds`,
    one of them starts another in a thread, which ends with it. Threads may share a directory, and a forked process
    may continue to use it.

    Args:
        gateway: where to look.
        refresh_seconds: the age at which a scan is repeated.
        clock: of seconds, for tests.

    Attributes:
        found_at: when the last scan ended, by that clock; None before the first.
        error: why the last scan failed, whose predecessor's places are still answered; None if it succeeded.
    """

    def __init__(
        self, gateway: RedisGateway, refresh_seconds: float = 60.0, *, clock: Callable[[], float] = elapsed_clock
    ) -> None:
        checks.positive("refresh_seconds", refresh_seconds)
        self.found_at: float | None = None
        self.error: RedisMessageQueueError | None = None
        self._gateway = gateway
        self._refresh_seconds = refresh_seconds
        self._clock = clock
        self._places: list[FoundPlace] = []
        self._thread: threading.Thread | None = None

    def places(self) -> list[FoundPlace]:
        """Return the places as the last scan found them.

        Raises:
            RedisUnavailableError, RedisAccessError: the first scan failed; later failures are kept in `error`.
        """
        if self.found_at is None:
            return self.refresh()
        if self._clock() - self.found_at >= self._refresh_seconds and not self.is_refreshing:
            self._thread = threading.Thread(target=self._refresh_behind, name="sluicegate-directory", daemon=True)
            self._thread.start()
        return self._places

    @property
    def is_refreshing(self) -> bool:
        """Return whether a scan runs in the background."""
        return self._thread is not None and self._thread.is_alive()

    def refresh(self) -> list[FoundPlace]:
        """Scan now, and return what was found."""
        self._places = find_places(self._gateway)
        self.found_at, self.error = self._clock(), None
        return self._places

    def close(self) -> None:
        """Wait for a scan that runs in the background; the gateway stays open."""
        if self._thread is not None:
            self._thread.join()

    def _refresh_behind(self) -> None:
        try:
            self.refresh()
        except RedisMessageQueueError as error:
            self.found_at, self.error = self._clock(), error
            _log.warning("the queues on %s could not be found again: %s", self._gateway.server, error)
