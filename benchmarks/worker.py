"""Rates in one mode; a process measures one mode only, because redis-py chooses its parser when it is imported."""

from __future__ import annotations

import json
import platform
import socket
import sys
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from typing import Any, Literal, cast

from benchmarks.part import Found, Settings, Step

__all__ = ["fast", "plain"]

Mode = Literal["fast", "plain"]
_FAST = ("orjson", "hiredis")


def fast(settings: Settings) -> Iterator[Step]:
    """With orjson and hiredis."""
    return _steps("fast", settings)


def plain(settings: Settings) -> Iterator[Step]:
    """Run without a queue."""
    block(*_FAST)
    return _steps("plain", settings)


def _steps(mode: Mode, settings: Settings) -> Iterator[Step]:
    for place, port in (("unix socket", 0), ("loopback TCP", _free_port())):
        yield place, partial(_measure, mode, place, port, settings["rounds"], settings["count"])


def _measure(mode: Mode, place: str, port: int, rounds: int, count: int) -> Found:
    """Rates at one place, and at the first, what the scripts cost."""
    # Imported only now: what is blocked must be blocked before.
    import redis.utils

    from benchmarks import anatomy, rates
    from tests.support.servers import RedisServer, programs

    assert redis.utils.HIREDIS_AVAILABLE is (mode == "fast"), "the `fast` extra is what this mode says"
    encode, decode = _json(mode)
    server = RedisServer(programs()[0], port=port).start()
    try:
        with server.client() as client:
            versions = _versions(mode) | {"redis-server": client.info("server")["redis_version"]}
            found = rates.run(client, rounds=rounds, count=count, encode=encode, decode=decode)
            figures = {f"Rates, {mode}, {place}, batches of 1,000 but for single": found.figures()}
            if not port:
                figures[f"Cost per message, {mode}"] = anatomy.run(client, count=count)
            return Found(figures, found.bars(mode, place), {mode: versions})
    finally:
        server.remove()


def block(*names: str) -> None:
    """Make imports of these modules fail as if they were not installed."""
    already = [name for name in (*names, "redis", "sluicegate") if name in sys.modules]
    assert not already, f"imported too early: {already}"
    for name in names:
        sys.modules[name] = cast("Any", None)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def _json(mode: str) -> tuple[Any, Any]:
    """Return the encoder and decoder that a program without a queue library would use."""
    if mode == "fast":
        import orjson

        return orjson.dumps, orjson.loads
    return lambda payload: json.dumps(payload, separators=(",", ":")).encode(), json.loads


def _versions(mode: str) -> dict[str, str]:
    names = ("redis", *_FAST) if mode == "fast" else ("redis",)
    return {"python": platform.python_version(), **{name: version(name) for name in names}}
