"""Start the demo with `python -m sluicegate.web.demo`; see `make demo-ui`."""

from __future__ import annotations

import argparse
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from sluicegate.embedded import stop_server
from sluicegate.errors import EmbeddedServerError
from sluicegate.web.demo.app import create_demo
from sluicegate.web.server import serve

_FIRST_PORT, _PORTS = 8090, 20
_START_SECONDS = 30.0


def main(arguments: list[str] | None = None) -> int:
    """Serve the demo until Ctrl-C, then stop its Redis and delete its folder; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m sluicegate.web.demo",
        description="Watch jobs that fail, hang and return to the queue, in the browser.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; default 127.0.0.1")
    parser.add_argument("--port", type=int, help=f"default: the first free one from {_FIRST_PORT}")
    options = parser.parse_args(arguments)
    port = options.port if options.port is not None else _free_port(options.host)
    if port is None or not _is_free(options.host, port):
        sys.stderr.write(f"port {port or _FIRST_PORT} of {options.host} is in use; give another one with --port\n")
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `kill` cleans up as Ctrl-C does
    folder = Path(tempfile.mkdtemp(prefix="sluicegate-demo-"))
    try:
        with create_demo(f"embedded://{folder}") as demo:
            threading.Thread(
                target=_announce, args=(options.host, port, demo.link, demo.token), name="announce", daemon=True
            ).start()
            serve(demo.app, host=options.host, port=port)
    except KeyboardInterrupt:
        pass
    except EmbeddedServerError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    finally:
        with suppress(EmbeddedServerError):
            stop_server(folder)
        shutil.rmtree(folder, ignore_errors=True)
    sys.stdout.write("\nStopped; the demo's Redis and its data are gone.\n")
    return 0


def _announce(host: str, port: int, link: str, token: str) -> None:
    """Print the link once the page can be opened."""
    deadline = time.monotonic() + _START_SECONDS
    while not _answers(host, port) and time.monotonic() < deadline:
        time.sleep(0.05)
    sys.stdout.write(
        f"\n  The demo is running. Open\n\n    http://{host}:{port}{link}\n\n"
        f"  The link works once; a further browser can log in with the token {token}\n"
        "  Ctrl-C stops the demo and deletes its data.\n\n"
    )
    sys.stdout.flush()


def _answers(host: str, port: int) -> bool:
    """Return whether a server listens on a port."""
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False


def _free_port(host: str) -> int | None:
    return next((port for port in range(_FIRST_PORT, _FIRST_PORT + _PORTS) if _is_free(host, port)), None)


def _is_free(host: str, port: int) -> bool:
    """Return whether a server could listen on a port."""
    try:
        with socket.create_server((host, port)):
            return True
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
