"""The examples in the docstrings are complete `Definitions` that load."""

from __future__ import annotations

import inspect
import textwrap

import dagster as dg
import pytest

import dagster_sluicegate

pytestmark = pytest.mark.dagster

TEXTS = {name: inspect.getdoc(getattr(dagster_sluicegate, name)) or "" for name in dagster_sluicegate.__all__}


def test_every_factory_has_an_example() -> None:
    factories = {name for name in TEXTS if name.startswith("build_")}
    assert {name for name in factories if "dg.Definitions(" not in TEXTS[name]} == set()


@pytest.mark.parametrize("name", [name for name, text in TEXTS.items() if "dg.Definitions(" in text])
def test_the_example_loads(name: str) -> None:
    text = TEXTS[name]
    code = textwrap.dedent(text.partition(".. code-block:: python\n")[2])
    names: dict[str, object] = {"__name__": "example"}
    exec(compile(code, "docstring", "exec", dont_inherit=True), names)  # noqa: S102
    defs = names["defs"]
    assert isinstance(defs, dg.Definitions)
    dg.Definitions.validate_loadable(defs)
    assert defs.resolve_asset_graph().get_all_asset_keys() or list(defs.jobs or ())
