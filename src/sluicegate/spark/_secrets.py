"""Warn of a password that Spark writes in clear into its event log and its UI.

Executors read the password of Redis from an environment variable. Where `spark.executorEnv.NAME` sets it, Spark shows
the value wherever it shows its configuration, unless `spark.redaction.regex` covers the name.
"""

from __future__ import annotations

import logging
import re
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from sluicegate.log_lines import log_line
from sluicegate.spec import QueueSpec

__all__ = ["names_in_clear", "variables_of", "warn_of_secrets_in_clear"]

_PREFIXES = ("spark.executorEnv.", "spark.yarn.appMasterEnv.", "spark.kubernetes.driverEnv.")
_REGEX = "spark.redaction.regex"
_DEFAULT_REGEX = r"(?i)secret|password|token|access[.]?key"  # of Spark 4.0; 4.3 covers `credential` too
_warned: set[str] = set()


def warn_of_secrets_in_clear(spark: Any, spec: QueueSpec) -> None:
    """Log a warning, once per process and setting, for each password of a queue that Spark shows in clear.

    It never fails, and reads the configuration only for a URL that names a variable.
    """
    try:
        found = names_in_clear(spark, spec)
    except Exception:  # noqa: BLE001  (a session that cannot answer is no reason to refuse the work)
        return
    for setting in found:
        if setting in _warned:
            continue
        _warned.add(setting)
        name = setting.rpartition(".")[2]
        log_line(
            logging.WARNING,
            f"Spark's setting {setting} holds the password of {spec.name!r}, and {_REGEX} does not cover its name, so "
            f"Spark writes it in clear into its event log and shows it in its UI. Rename the variable to one with "
            f"PASSWORD in its name, such as {name}_PASSWORD, or set {_REGEX} to a pattern that matches {name}, and "
            "change the password",
        )


def names_in_clear(spark: Any, spec: QueueSpec) -> list[str]:
    """Return the settings of a session that hold a password of a queue and are not redacted."""
    variables = variables_of(spec.url)
    if not variables:
        return []
    pattern = re.compile(spark.conf.get(_REGEX, None) or _DEFAULT_REGEX)
    settings = [prefix + name for name in variables for prefix in _PREFIXES]
    return [name for name in settings if not pattern.search(name) and spark.conf.get(name, None) is not None]


def variables_of(url: str) -> list[str]:
    """Return the names of the environment variables from which a URL takes passwords."""
    return [value for name, value in parse_qsl(urlsplit(url).query) if name.endswith("password_env")]
