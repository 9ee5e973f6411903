"""A Redis server behind host, port and password."""

from __future__ import annotations

from typing import Any

import redis

from tests.support.servers import RedisServer, free_port, programs


class PasswordServer(RedisServer):
    """A server on a TCP port that keeps nothing and wants a password."""

    def __init__(self, password: str, *options: str) -> None:
        self.password = password
        super().__init__(programs()[0], "--requirepass", password, *options, port=free_port())

    def client(self, **options: Any) -> redis.Redis:
        return super().client(password=self.password, **options)
