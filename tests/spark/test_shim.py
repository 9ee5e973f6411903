"""`pyspark_sluicegate`, which Spark looks for: it names the source, and never breaks the others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pyspark_sluicegate

# The same search as Spark's, which imports what it finds without catching anything.
SEARCH = """
import sys
from importlib import import_module
from pkgutil import iter_modules

for name in {blocked!r}:
    sys.modules[name] = None
found = {{}}
for info in iter_modules():
    if info.name.startswith("pyspark_"):
        module = import_module(info.name)
        if hasattr(module, "DefaultSource"):
            found[info.name] = module.DefaultSource
print(sorted(found))
if "pyspark_sluicegate" in found:
    from pyspark.sql.datasource import DataSource

    print(found["pyspark_sluicegate"].name(), issubclass(found["pyspark_sluicegate"], DataSource))
print(sorted(name for name in ("redis", "pyarrow", "sluicegate.queue") if sys.modules.get(name)))
"""
NEIGHBOUR = "class DefaultSource: ...\n"


def search(folder: Path, *blocked: str) -> list[str]:
    """Return what Spark would find, with modules missing and another source in the way."""
    neighbour = folder / "pyspark_neighbour"
    neighbour.mkdir(exist_ok=True)
    (neighbour / "__init__.py").write_text(NEIGHBOUR)
    program = f"import sys; sys.path.insert(0, {str(folder)!r})\n" + SEARCH.format(blocked=blocked)
    done = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_spark_finds_the_source_by_its_name(tmp_path: Path) -> None:
    assert search(tmp_path)[:2] == ["['pyspark_neighbour', 'pyspark_sluicegate']", "sluicegate True"]


@pytest.mark.parametrize("missing", ["pyspark.sql.datasource", "sluicegate", "sluicegate.spark.datasource"])
def test_what_is_missing_hides_this_source_and_no_other(missing: str, tmp_path: Path) -> None:
    assert search(tmp_path, missing)[0] == "['pyspark_neighbour']"


def test_the_shim_is_three_lines_beside_its_docstring() -> None:
    lines = Path(pyspark_sluicegate.__file__).read_text().splitlines()
    assert len([line for line in lines if line and not line.startswith('"""')]) == 3
