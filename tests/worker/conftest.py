"""Workers of both flavours, with the synchronous interface, over any queue of the same flavour."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sluicegate.worker import Worker
from tests.support.flavours import Blocking, Flavour, Loop
from tests.support.servers import PROGRAMS

MakeWorker = Callable[..., Any]
_FLAVOURS = [Flavour(), Flavour(asyncio=True, decodes=True)]


@pytest.fixture(params=_FLAVOURS, ids=str)
def flavour(request: pytest.FixtureRequest) -> Flavour:
    """Each flavour in turn: handlers of a test are plain functions, which an asyncio worker calls in threads."""
    made: Flavour = request.param
    return made


@pytest.fixture
def make_worker(flavour: Flavour, loop: Loop) -> Iterator[MakeWorker]:
    """Yield a function that makes workers; none runs after the test."""
    made: list[Any] = []

    def make(queue: Any, **options: Any) -> Any:
        if not flavour.asyncio:
            made.append(Worker(queue, **options))
        else:
            from sluicegate.asyncio.worker import Worker as AsyncWorker

            target = object.__getattribute__(queue, "__dict__")["_target"]
            made.append(Blocking(AsyncWorker(target, **options), loop))
        return made[-1]

    yield make
    for worker in made:
        if worker.is_running:
            worker.stop(0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Workers are Python above the queue's scripts, so one server program is enough for them."""
    items[:] = [item for item in items if not _needless(item)]


def _needless(item: pytest.Item) -> bool:
    params = getattr(getattr(item, "callspec", None), "params", {})
    return item.path.parent == Path(__file__).parent and params.get("server", PROGRAMS[0]) != PROGRAMS[0]
