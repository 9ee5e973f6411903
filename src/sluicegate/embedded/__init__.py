"""A local Redis server on a unix socket that keeps its data in a folder: for development, demos and tests.

Whoever names the same folder shares one server. The first user starts it, a small watcher stops it when nobody
has been connected for a while, and the data stays in the folder. Not meant for production: it speaks to one
user on one machine.
"""

from __future__ import annotations

from sluicegate.embedded.binary import find_server
from sluicegate.embedded.client import EmbeddedOptions, connect, parse_url
from sluicegate.embedded.server import EmbeddedServer, ensure_server, stop_server

__all__ = [
    "EmbeddedOptions",
    "EmbeddedServer",
    "connect",
    "ensure_server",
    "find_server",
    "parse_url",
    "stop_server",
]
