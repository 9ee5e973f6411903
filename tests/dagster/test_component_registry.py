"""`dg` imports the module of the components in every environment, so it lists them or nothing, and never fails."""

from __future__ import annotations

import importlib.metadata
import inspect

import pytest

from dagster_sluicegate import components
from tests.dagster.test_package import WITHOUT_DAGSTER, run

pytestmark = pytest.mark.dagster

GROUP = "dagster_dg_cli.registry_modules"
LISTED = """
import importlib
module = importlib.import_module("dagster_sluicegate.components")
print(sorted(name for name in dir(module) if hasattr(getattr(module, name), "__dg_package_entry__")))
try:
    module.QueueDrainAssetComponent
except ImportError as error:
    print(error)
"""
# Other versions of Dagster, each of which lacks one public name that the components need.
LACKING = """
import importlib, sys, warnings
warnings.simplefilter("ignore")
import dagster
warnings.simplefilter("error")
for name in ("Component", "ResolvedAssetSpec", "scaffold_with", "DefaultSensorStatus"):
    value = getattr(dagster, name)
    delattr(dagster, name)
    module = importlib.import_module("dagster_sluicegate.components")
    print([each for each in dir(module) if hasattr(getattr(module, each), "__dg_package_entry__")])
    try:
        module.QueueDrainAssetComponent
    except ImportError as error:
        print(error)
    setattr(dagster, name, value)
    for loaded in [each for each in sys.modules if each.startswith("dagster_sluicegate")]:
        del sys.modules[loaded]
"""


def test_the_distribution_registers_the_module() -> None:
    (entry,) = [each for each in importlib.metadata.entry_points(group=GROUP) if each.name == "dagster_sluicegate"]
    assert entry.value == "dagster_sluicegate.components"
    assert inspect.ismodule(entry.load())


def test_the_module_exports_components_and_only_them() -> None:
    entries = {name for name in dir(components) if hasattr(getattr(components, name), "__dg_package_entry__")}
    assert entries == set(components.__all__)
    public = {name for name in vars(components) if not name.startswith("_") and inspect.isclass(vars(components)[name])}
    assert public - {"PackageNotFoundError"} == entries


def test_without_dagster_it_lists_nothing_and_a_component_says_why() -> None:
    printed = run(WITHOUT_DAGSTER + LISTED).splitlines()
    assert printed[0] == "[]"
    assert printed[1].startswith("dagster_sluicegate.components.QueueDrainAssetComponent needs dagster>=1.12,<2, and")
    assert printed[1].endswith("ModuleNotFoundError: No module named 'dagster'")


def test_with_a_dagster_that_lacks_a_name_it_lists_nothing_and_a_component_says_why() -> None:
    printed = run(LACKING).splitlines()
    assert printed[::2] == ["[]"] * 4
    names = ("Component", "ResolvedAssetSpec", "scaffold_with", "DefaultSensorStatus")
    for name, reason in zip(names, printed[1::2], strict=True):
        assert "needs dagster>=1.12,<2, and found dagster 1." in reason
        assert f"AttributeError: module 'dagster' has no attribute '{name}'" in reason


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'QueueDrainComponent'"):
        _ = components.QueueDrainComponent
