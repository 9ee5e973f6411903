"""Python workers that have Spark, Arrow and redis-py but not Sluicegate, and Sluicegate as a zip to send them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sluicegate
from sluicegate import RedisMessageQueue
from sluicegate.spark import submit
from tests.spark.jvm import SHORT_LIVED

__all__ = ["Submitted", "bare_environment", "installed_last", "package_zip", "spark_defaults", "submit_orders"]

NEEDED = ("pyspark", "pyarrow", "redis", "tenacity", "sluicegate")  # all but the last must be there
PACKAGES = ("sluicegate", "pyspark_sluicegate")

# What a Connect client and spark-submit cannot set for the JVM that they start.
DEFAULTS = f"""
spark.driver.extraJavaOptions {SHORT_LIVED}
spark.ui.enabled false
spark.ui.showConsoleProgress false
spark.driver.host 127.0.0.1
spark.driver.bindAddress 127.0.0.1
spark.driver.memory 1g
spark.sql.shuffle.partitions 2
"""


def bare_environment(conf: Path) -> dict[str, str]:
    """Return an environment for a Spark whose workers cannot import this package.

    The interpreter below the virtual environment gets the environment's libraries by PYTHONPATH, which does not follow
    the `.pth` file of a package that is installed in place.
    """
    import pyspark

    libraries = str(Path(pyspark.__file__).parents[1])
    python = getattr(sys, "_base_executable", sys.executable)
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": python,
        "PYTHONPATH": libraries,
        "SPARK_CONF_DIR": str(conf),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_TESTING": "1",  # a Connect server listens on a free port instead of a fixed one
    }
    probe = [
        python,
        "-c",
        "from importlib.util import find_spec as f; print(*map(bool, map(f, NAMES)))".replace("NAMES", repr(NEEDED)),
    ]
    said = subprocess.run(probe, env=environment, cwd=conf, text=True, capture_output=True, check=True).stdout
    assert said.split() == ["True"] * (len(NEEDED) - 1) + ["False"], said
    return environment


def package_zip(folder: Path) -> Path:
    """This package and its shim as one file, for `--py-files` and `addArtifacts`."""
    path = folder / "sluicegate.zip"
    source = Path(sluicegate.__file__).parents[1]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(file for name in PACKAGES for file in (source / name).rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(source))
    return path


def spark_defaults(folder: Path) -> Path:
    """Return a configuration folder with small and local settings."""
    conf = folder / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(DEFAULTS)
    return conf


@dataclass(frozen=True, slots=True)
class Submitted:
    """What `spark-submit` and the handler that it shipped left behind.

    Attributes:
        code: the exit code of `spark-submit`.
        errors: the end of its standard error.
        output: its standard output.
        written: the lines of each file that the handler wrote.
    """

    code: int
    errors: str
    output: str
    written: list[list[str]]

    @property
    def summary(self) -> dict[str, Any]:
        """Return the summary of the drain, which is the last line of the output."""
        found: dict[str, Any] = json.loads(self.output.strip().splitlines()[-1])
        return found


def submit_orders(
    queue: RedisMessageQueue,
    jobs: str,
    package: Path,
    environment: Mapping[str, str],
    *,
    master: str,
    conf: Mapping[str, str] | None = None,
) -> Submitted:
    """Drain with `spark-submit` and the function `store` of a module that is shipped beside the package.

    The folder of the package gets the module's archive and the files that the function writes. The name `FOLDER` in the
    module's source stands for the folder of these files.
    """
    folder = package.parent
    stored = folder / "stored"
    stored.mkdir()
    with zipfile.ZipFile(folder / "jobs.zip", "w") as archive:
        archive.writestr("orders_job.py", jobs.replace("FOLDER", repr(str(stored))))
    settings = [word for name, value in (conf or {}).items() for word in ("--conf", f"{name}={value}")]
    done = subprocess.run(
        [
            f"{environment['SPARK_HOME']}/bin/spark-submit",
            *("--master", master, "--py-files", f"{package},{folder / 'jobs.zip'}", *settings),
            *(submit.application(), *submit.arguments(queue, "orders_job:store", partitions=2, batch_size=20)),
        ],
        env=environment,
        cwd=folder,
        text=True,
        capture_output=True,
        timeout=380,
        check=False,
    )
    written = [file.read_text().splitlines() for file in stored.iterdir()]
    return Submitted(done.returncode, done.stderr[-5000:], done.stdout, written)


def installed_last(environment: dict[str, str], package: Path) -> dict[str, str]:
    """Return the environment of a Connect server that has the package installed, behind whatever a client sends.

    From Spark 4.3 neither the process in which a streaming query asks for offsets nor the workers that read its rows
    get the artifacts of the session.
    """
    folder = package.parent / "driver"
    folder.mkdir()
    installed = folder / "installed.zip"
    installed.write_bytes(package.read_bytes())
    (folder / "sitecustomize.py").write_text(f"import sys\nsys.path.append({str(installed)!r})\n")
    return {**environment, "PYTHONPATH": os.pathsep.join([str(folder), environment["PYTHONPATH"]])}
