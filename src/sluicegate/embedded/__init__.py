"""This package runs a local Redis server on a unix socket for development, demos and tests.

The server keeps its data in a folder, and all processes that name the same folder share one server. The first process
starts it, a small watcher stops it after an idle time, and the data stays in the folder. Do not use it in production:
it serves one user on one machine.
"""

from __future__ import annotations

from sluicegate.embedded.binary import find_server
from sluicegate.embedded.client import EmbeddedOptions, connect, parse_url
from sluicegate.embedded.server import EmbeddedServer, ensure_server, find_running, stop_server

__all__ = [
    "EmbeddedOptions",
    "EmbeddedServer",
    "connect",
    "ensure_server",
    "find_running",
    "find_server",
    "parse_url",
    "stop_server",
]
