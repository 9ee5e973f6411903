"""A password that Spark shows in its event log, under a name that it does not redact, is reported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sluicegate import RedisMessageQueue
from sluicegate.spark import _secrets
from sluicegate.spark._secrets import names_in_clear, variables_of, warn_of_secrets_in_clear
from tests.spark.jvm import SHORT_LIVED


class Session:
    """The part of a session that is asked."""

    def __init__(self, **settings: str) -> None:
        self.settings = {name.replace("__", "."): value for name, value in settings.items()}
        self.conf = self

    def get(self, name: str, default: str | None) -> str | None:
        return self.settings.get(name, default)


def spec_of(variable: str = "REDIS_PW") -> object:
    return RedisMessageQueue("orders", url=f"redis://user@h:6379/0?password_env={variable}").spec()


@pytest.fixture(autouse=True)
def _nothing_reported_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_secrets, "_warned", set())


@pytest.mark.parametrize("prefix", ["spark.executorEnv", "spark.yarn.appMasterEnv", "spark.kubernetes.driverEnv"])
def test_a_password_under_a_name_that_is_not_redacted_is_reported_once(
    prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    session = Session(**{f"{prefix}.REDIS_PW": "hunter2"})
    for _ in range(2):
        warn_of_secrets_in_clear(session, spec_of())  # type: ignore[arg-type]

    (said,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert f"{prefix}.REDIS_PW holds the password of 'orders'" in said.message
    assert "such as REDIS_PW_PASSWORD" in said.message
    assert "hunter2" not in said.message


@pytest.mark.parametrize(
    ("variable", "settings"),
    [
        ("REDIS_PASSWORD", {"spark.executorEnv.REDIS_PASSWORD": "x"}),
        ("REDIS_PW", {}),
        ("REDIS_PW", {"spark.executorEnv.OTHER": "x"}),
        ("REDIS_PW", {"spark.executorEnv.REDIS_PW": "x", "spark.redaction.regex": "(?i)secret|_pw"}),
    ],
    ids=["a name that Spark redacts", "set by the hosts", "another variable", "a pattern of the user"],
)
def test_what_spark_does_not_show_is_not_reported(
    variable: str, settings: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_secrets_in_clear(Session(**settings), spec_of(variable))  # type: ignore[arg-type]

    assert caplog.messages == []


def test_a_pattern_of_the_user_may_cover_less(caplog: pytest.LogCaptureFixture) -> None:
    session = Session(**{"spark.executorEnv.REDIS_PASSWORD": "x", "spark.redaction.regex": "secret"})

    assert names_in_clear(session, spec_of("REDIS_PASSWORD")) == ["spark.executorEnv.REDIS_PASSWORD"]  # type: ignore[arg-type]


def test_a_session_that_cannot_answer_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    broken = Session(**{"spark.executorEnv.REDIS_PW": "x", "spark.redaction.regex": "(?<!a+)("})
    warn_of_secrets_in_clear(broken, spec_of())  # type: ignore[arg-type]
    warn_of_secrets_in_clear(None, spec_of())  # type: ignore[arg-type]

    assert caplog.messages == []


def test_the_variables_of_a_url_are_those_of_redis_and_of_the_sentinels() -> None:
    url = "redis+sentinel://a:1,b:2/main?password_env=ONE&sentinel_password_env=TWO&db=3"

    assert variables_of(url) == ["ONE", "TWO"]
    assert variables_of("redis://h:6379/0") == []


PROGRAM = f"""
import logging, sys
from pyspark.sql import SparkSession
from sluicegate import RedisMessageQueue
from sluicegate.spark import options

logging.basicConfig(level="WARNING")
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.extraJavaOptions", {SHORT_LIVED!r})
    .config("spark.eventLog.enabled", "true")
    .config("spark.eventLog.dir", sys.argv[1])
    .config("spark.eventLog.compress", "false")
    .config("spark.executorEnv.REDIS_PW", "CANARY-1")
    .config("spark.executorEnv.REDIS_PASSWORD", "CANARY-2")
    .getOrCreate()
)
for name in ("REDIS_PW", "REDIS_PASSWORD"):
    options(RedisMessageQueue("orders", url="redis://user@127.0.0.1:6379/0?password_env=" + name))
spark.range(1).count()
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.full
def test_the_event_log_shows_what_is_reported_and_hides_the_other(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], text=True, capture_output=True, timeout=280, check=True
    )

    log = "".join(file.read_text() for file in tmp_path.rglob("*") if file.is_file() and not file.name.startswith("."))
    assert ("CANARY-1" in log, "CANARY-2" in log) == (True, False)
    assert json.dumps("spark.executorEnv.REDIS_PASSWORD") + ":" + json.dumps("*********(redacted)") in log
    assert "spark.executorEnv.REDIS_PW holds the password of 'orders'" in done.stderr
    assert "spark.executorEnv.REDIS_PASSWORD holds" not in done.stderr
    assert "CANARY" not in done.stderr
