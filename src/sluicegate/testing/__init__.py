"""This package helps users test their code: with a real server, a fresh queue per test, and two functions.

Put `pytest_plugins = ["sluicegate.testing"]` into a `conftest.py` to load the fixtures.
`sluicegate.testing.asyncio` has the same functions for asyncio queues.
"""

from __future__ import annotations

from sluicegate.testing.fixtures import TestServer, make_async_queue, make_queue, queue, redis_server, redis_url
from sluicegate.testing.looking import assert_published
from sluicegate.testing.matching import DrainCounts
from sluicegate.testing.working import drain_inline

__all__ = [
    "DrainCounts",
    "TestServer",
    "assert_published",
    "drain_inline",
    "make_async_queue",
    "make_queue",
    "queue",
    "redis_server",
    "redis_url",
]
