"""A feature exists for threads and for tasks, or not at all."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

import sluicegate
import sluicegate._redis.asyncio
import sluicegate.asyncio
import sluicegate.asyncio.worker
from tests.support.project import ROOT, load_script

sync: Any = load_script("sync")
BY_HAND = sorted(
    name
    for package in (sluicegate.asyncio, sluicegate.asyncio.worker, sluicegate._redis.asyncio)
    for _, name, _ in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
    if not {f"src/{name.replace('.', '/')}{end}" for end in (".py", "/__init__.py")} & set(sync.SOURCES)
)
RENAMED = {"aclose": "close", "__aenter__": "__enter__", "__aexit__": "__exit__"}


def test_the_synchronous_shells_are_made_from_the_asyncio_ones() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/sync.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_a_change_on_one_side_only_is_noticed() -> None:
    where = "src/sluicegate/asyncio/consumer.py"
    source = (ROOT / where).read_text(encoding="utf-8")
    made = sync.synchronous(source.replace("async def claim(", "async def seize("), where)
    assert made != (ROOT / "src/sluicegate/consumer.py").read_text(encoding="utf-8")
    assert "async" not in made.split('"""', 2)[2].replace("sluicegate.asyncio", "").replace("asyncio", "")


def test_few_modules_are_written_twice() -> None:
    assert BY_HAND == [
        "sluicegate._redis.asyncio.pools",
        "sluicegate.asyncio.heartbeat_workers",
        "sluicegate.asyncio.notices",
        "sluicegate.asyncio.runtime",
        "sluicegate.asyncio.worker.slots",
    ]


@pytest.mark.parametrize("name", BY_HAND)
def test_what_is_written_twice_by_hand_has_the_same_names_and_parameters(name: str) -> None:
    there = importlib.import_module(name)
    here = importlib.import_module(name.replace(".asyncio", ""))
    assert face(there) == face(here)


def test_both_packages_export_the_same_names_and_the_same_values() -> None:
    """A drain blocks, so asyncio has none: a program runs it in a thread, as its error for an asyncio queue says."""
    there, here = sluicegate.asyncio, sluicegate
    of_drains = ["DrainContext", "DrainProgress", "DrainSummary", "HandlerFailure", "PartitionSummary", "drain"]
    assert sorted(set(here.__all__) - set(there.__all__)) == of_drains
    assert there.__all__ == [name for name in here.__all__ if name not in of_drains]
    own = [name for name in there.__all__ if getattr(there, name) is not getattr(here, name)]
    assert sorted(own) == [
        *("Batch", "ConsumerGroup", "Lease", "MessageLoop", "QueueConsumer", "RedisGateway", "RedisMessageQueue"),
        "RedisStreamQueue",
        *("open_place", "open_spec", "open_url"),
    ]


def face(module: ModuleType) -> dict[str, object]:
    """Return the public names of a module with their parameters, by their synchronous names."""
    return {name: shape(getattr(module, name)) for name in sorted(module.__all__)}


def shape(value: object) -> object:
    if inspect.isclass(value):
        members = {
            RENAMED.get(name, name): shape(member)
            for name, member in vars(value).items()
            if not name.startswith("_") or name in ("__init__", *RENAMED)
        }
        return dict(sorted(members.items()))
    if inspect.isfunction(value):
        return [name.lstrip("_") for name in inspect.signature(value).parameters]
    return type(value).__name__
