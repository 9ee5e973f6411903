"""Projects whose `defs` folder a test writes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
from dagster.components.testing import create_defs_folder_sandbox

RESOURCE = """
type: dagster_sluicegate.components.RedisQueueResourceComponent
attributes:
  url_env_var: REDIS_URL
  queue_name: orders
"""


@contextmanager
def project(files: Mapping[str, str]) -> Iterator[dg.Definitions]:
    """Yield the definitions of a project with these files below its `defs` folder, all of them loadable."""
    with create_defs_folder_sandbox() as sandbox:
        write(sandbox.defs_folder_path, files)
        with sandbox.build_all_defs() as defs:
            dg.Definitions.validate_loadable(defs)
            yield defs


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip())


def refusal(files: Mapping[str, str]) -> str:
    """Return the error of a project that does not load: its whole chain, as Dagster's UI shows it."""
    try:
        with project(files):
            pass
    except Exception as error:
        return "\n".join(_chain(error))
    raise AssertionError("the project loads")


def _chain(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
