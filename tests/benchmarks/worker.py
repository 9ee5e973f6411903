"""One mode of the benchmark in a process of its own, because redis-py chooses its parser when it is imported.

Usage: python -m tests.benchmarks.worker MODE ROUNDS COUNT OUTPUT     MODE: fast or plain
"""

from __future__ import annotations

import json
import platform
import socket
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, cast

__all__ = ["main"]

_FAST = ("orjson", "hiredis")


def main(mode: Literal["fast", "plain"], rounds: int, count: int) -> dict[str, Any]:
    """Measure rates over a unix socket and over loopback TCP, and take the scripts apart."""
    if mode == "plain":
        block(*_FAST)
    # Imported only now: what is blocked must be blocked before.
    import redis.utils

    from tests.benchmarks import anatomy, rates
    from tests.conformance.servers import RedisServer, programs

    assert redis.utils.HIREDIS_AVAILABLE is (mode == "fast"), "the `fast` extra is what this mode says"
    encode, decode = _json(mode)
    result: dict[str, Any] = {"bars": [], "rates": {}, "versions": _versions(mode)}
    for place, port in (("unix socket", 0), ("loopback TCP", _free_port())):
        server = RedisServer(programs()[0], port=port).start()
        try:
            with server.client() as client:
                result["versions"]["redis-server"] = client.info("server")["redis_version"]
                found = rates.run(client, rounds=rounds, count=count, encode=encode, decode=decode)
                result["rates"][place] = found.figures()
                result["bars"] += [bar.to_dict() for bar in found.bars(mode, place)]
                if not port:
                    result["anatomy"] = anatomy.run(client, count=count)
        finally:
            server.remove()
    return result


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
    """The encoder and decoder that somebody would use by hand."""
    if mode == "fast":
        import orjson

        return orjson.dumps, orjson.loads
    return lambda payload: json.dumps(payload, separators=(",", ":")).encode(), json.loads


def _versions(mode: str) -> dict[str, str]:
    names = ("redis", *_FAST) if mode == "fast" else ("redis",)
    return {"python": platform.python_version(), **{name: version(name) for name in names}}


if __name__ == "__main__":
    chosen, how_many, messages, output = sys.argv[1:]
    Path(output).write_text(json.dumps(main(cast("Any", chosen), int(how_many), int(messages))))
