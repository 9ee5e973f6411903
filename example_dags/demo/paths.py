"""Name the files and folders of the demo."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from sluicegate import RedisMessageQueue
from sluicegate.embedded import stop_server

__all__ = ["PARTITIONS", "PROJECT", "QUEUE", "Paths"]

PROJECT = Path(__file__).resolve().parents[2]
QUEUE = "flights"
PARTITIONS = 4
# A partition drains until the queue is empty, so partitions share the work only while they run at the same time. There
# are therefore as many task slots as partitions. Spark may try a task 3 times; plain local mode tries once. The options
# of the JVM halve the start time of a process that lives for half a minute.
_SPARK_DEFAULTS = f"""\
spark.master local[{PARTITIONS},3]
spark.driver.memory 1g
spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
spark.driver.host 127.0.0.1
spark.driver.bindAddress 127.0.0.1
spark.ui.enabled false
spark.ui.showConsoleProgress false
spark.sql.shuffle.partitions {PARTITIONS}
spark.sql.session.timeZone UTC
spark.python.daemon.module example_dags.demo.spark_daemon
"""
_SPARK_LOGGING = """\
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = ${env:FLIGHTS_SPARK_LOG}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n%ex
"""


@dataclass(frozen=True, slots=True)
class Paths:
    """Names the folders and files below one home folder, by default `build/demo` or `build/demo-dagster`."""

    home: Path

    @property
    def redis(self) -> Path:
        """Return the folder of the embedded server."""
        return self.home / "redis"

    @property
    def url(self) -> str:
        """Return the URL of the embedded server, which starts when it is first used."""
        quoted = str(self.redis).replace("%", "%25").replace("?", "%3F").replace("#", "%23")
        return f"embedded://{quoted}"

    @property
    def logs(self) -> Path:
        """Return the folder of the logs of the orchestrator and of Spark."""
        return self.home / "logs"

    @property
    def airflow_log(self) -> Path:
        """Return Airflow's log, which includes the output of the tasks and of Spark's workers."""
        return self.logs / "airflow.log"

    @property
    def dagster_log(self) -> Path:
        """Return Dagster's log, which includes the output of the steps and of Spark's workers."""
        return self.logs / "dagster.log"

    @property
    def spark_log(self) -> Path:
        """Return the log of Spark's JVM."""
        return self.logs / "spark.log"

    @property
    def airflow_home(self) -> Path:
        """Return Airflow's home, which later runs reuse because creating its database takes longest."""
        return self.home / "airflow"

    @property
    def airflow_database(self) -> Path:
        """Return Airflow's metadata database."""
        return self.airflow_home / "airflow.db"

    @property
    def dagster_home(self) -> Path:
        """Return the folder of Dagster's instance, which each run creates anew."""
        return self.home / "dagster"

    @property
    def flights(self) -> Path:
        """Return the folder of the Parquet files: one file per lease, one folder per partition."""
        return self.home / "flights"

    @property
    def delays(self) -> Path:
        """Return the folder of the last task's result."""
        return self.home / "delays"

    @property
    def chart(self) -> Path:
        """Return the file of the chart."""
        return self.home / "gate.png"

    @property
    def report(self) -> Path:
        """Return the file with counts and seconds, for programs."""
        return self.home / "report.json"

    def queue(self) -> RedisMessageQueue:
        """Return the queue, for reading its depth."""
        return RedisMessageQueue(QUEUE, url=self.url, retry_budget_seconds=5)

    def clear(self) -> None:
        """Stop the server of an earlier run and remove everything but the orchestrator's database."""
        if self.redis.exists():
            stop_server(self.redis)
        for folder in (self.redis, self.logs, self.flights, self.delays, self.home / "spark"):
            shutil.rmtree(folder, ignore_errors=True)
        for file in (self.chart, self.report):
            file.unlink(missing_ok=True)
        self.logs.mkdir(parents=True)

    def write_spark_configuration(self) -> Path:
        """Write Spark's own configuration, which the pipeline does not contain, and return its folder."""
        folder = self.home / "spark" / "conf"
        folder.mkdir(parents=True, exist_ok=True)
        scratch = self.home / "spark" / "scratch"
        (folder / "spark-defaults.conf").write_text(
            f"{_SPARK_DEFAULTS}spark.local.dir {scratch}\nspark.sql.warehouse.dir {self.home / 'spark' / 'warehouse'}\n"
        )
        (folder / "log4j2.properties").write_text(_SPARK_LOGGING)
        return folder

    def environment(self, *, csv: Path, min_ready: int, month: int, batch_size: int) -> dict[str, str]:
        """Return the environment in which Spark and the pipeline find each other; the rest is inherited."""
        python_path = [str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])]
        return dict(os.environ) | {
            "FLIGHTS_CSV": str(csv),
            "FLIGHTS_OUTPUT": str(self.home),
            "FLIGHTS_MIN_READY": str(min_ready),
            "FLIGHTS_MONTH_AGAIN": str(month),
            "FLIGHTS_BATCH_SIZE": str(batch_size),
            "FLIGHTS_SPARK_LOG": str(self.spark_log),
            "SPARK_CONF_DIR": str(self.write_spark_configuration()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(python_path),
            "PYTHONUNBUFFERED": "1",
        }
