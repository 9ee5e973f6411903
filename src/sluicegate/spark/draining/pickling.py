"""Pickles a handler for executors, which import neither the driver's main file nor a module that it loaded by file."""

from __future__ import annotations

import io
import os
import sys
import sysconfig
import threading
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec, PathFinder
from types import FunctionType, ModuleType
from typing import Any

from pyspark import cloudpickle

__all__ = ["dumps", "is_importable"]

_lock = threading.Lock()  # the registry of modules is the process's


def dumps(value: object) -> bytes:
    """Pickle a value, with functions and classes by value if a fresh interpreter could not import their module.

    Such are `__main__`, notebooks, and files that something loaded under a name of its own, as Airflow loads DAG files
    and Dagster code locations. Installed packages and modules on `sys.path` stay references, so that executors use
    their own.
    """
    with _lock, io.BytesIO() as file:
        pickler = _Pickler(file)
        try:
            pickler.dump(value)  # type: ignore[no-untyped-call]
        finally:
            for module in pickler.registered:
                cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]
        return file.getvalue()


def is_importable(module: ModuleType) -> bool:
    """Return whether a fresh interpreter with this `sys.path` finds the same file under the module's name.

    `importlib.util.find_spec` does not tell: it answers for what is imported already, wherever that came from. A module
    without a file was made by a package or is built in, and comes with it.
    """
    name, file = module.__name__, getattr(module, "__file__", None)
    if file is None:
        return True
    path = None
    if parent := name.rpartition(".")[0]:
        package = sys.modules.get(parent)
        path = getattr(package, "__path__", None)
        if package is None or path is None or not is_importable(package):
            return False
    file, is_known = os.path.realpath(file), False
    for spec in _specs(name, path):
        if spec.origin in ("built-in", "frozen") or (spec.has_location and os.path.realpath(spec.origin or "") == file):
            return True
        is_known = is_known or spec.loader is not None
    # A package may put one of its modules under the name of another, as `collections.abc` is.
    return is_known and _is_installed(file)


def _specs(name: str, path: Iterable[str] | None) -> Iterator[ModuleSpec]:
    """Yield what each place of the search knows under a name, also behind the first: `addPyFile` puts copies there."""
    for finder in sys.meta_path:
        places = [path]
        if finder is PathFinder:
            places = [[place] for place in (sys.path if path is None else path)]
        for place in places:
            spec = finder.find_spec(name, place)  # type: ignore[arg-type]
            if spec is not None:
                yield spec


def _is_installed(file: str) -> bool:
    folders = (sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib"))
    return file.startswith(tuple(os.path.realpath(folder) + os.sep for folder in folders))


class _Pickler(cloudpickle.Pickler):
    """Registers modules to pickle by value as their functions and classes come up.

    Attributes:
        registered: the modules that it registered; whoever made it takes them back.
    """

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)  # type: ignore[no-untyped-call]
        self.registered: list[ModuleType] = []
        self._known = set(cloudpickle.cloudpickle.list_registry_pickle_by_value())  # type: ignore[no-untyped-call]

    def reducer_override(self, obj: Any) -> Any:
        module = obj
        if isinstance(obj, (FunctionType, type)):
            module = sys.modules.get(obj.__module__ or "")
        if isinstance(module, ModuleType) and module.__name__ not in self._known:
            self._known.add(module.__name__)
            # cloudpickle itself knows the main module, and what is in no module at all.
            if module.__name__ in sys.modules and module.__name__ != "__main__" and not is_importable(module):
                cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
                self.registered.append(module)
        return super().reducer_override(obj)  # type: ignore[no-untyped-call]
