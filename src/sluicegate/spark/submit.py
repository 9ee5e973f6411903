"""This program for `spark-submit` drains a queue with a function of yours.

    spark-submit --py-files sluicegate.zip,jobs.zip submit.py --url redis://host?password_env=REDIS_PASSWORD \\
        --queue orders --process jobs.orders:store

`application()` is the path of this file and `arguments()` makes the rest, for Airflow's SparkSubmitOperator. The driver
and the executors need this package, `redis`, `tenacity` and `pyarrow`, and your module. Put a password into a variable
of their environment, never into the arguments, which the cluster shows to everybody.

It prints the summary as one line of JSON. The exit code is 0 when all is done, 3 when the handler failed on some
messages (the summary lists them), 2 when an argument or option is invalid, and 1 with a traceback when Spark or Redis
failed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["application", "arguments", "main"]

_FAILED_MESSAGES = 3
_NUMBERS = {"partitions": int, "batch_size": int, "lease_seconds": float, "deadline_seconds": float}
_TEXTS = ("run_id", "batch_format", "schema")


def application() -> str:
    """Return the path of this file, which `spark-submit` and SparkSubmitOperator take as the application.

    Raises:
        FileNotFoundError: this package was imported from a zip; install it where jobs are submitted from.
    """
    path = Path(__file__)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is inside an archive; spark-submit needs a file, so install sluicegate here")
    return str(path)


def arguments(queue: Any, process: str, **options: object) -> list[str]:
    """Return the arguments for `application()`.

    Args:
        queue: a serializable `RedisMessageQueue`, made from a `url` without a literal password.
        process: the handler as `"module:function"`; it is not imported here.
        **options: options of `drain` under the same names, except `progress`; None is left out.

    Raises:
        ConfigurationError: the queue cannot be serialized, its URL has a password, or a value is invalid.
        TypeError: `drain` does not have the option, or its value cannot be written as text.
    """
    listed = ["--spec", queue.spec().to_json(), "--process", process]
    for name, value in options.items():
        if name not in (*_NUMBERS, *_TEXTS, "until"):
            raise TypeError(f"submit takes no option {name!r}; it takes {', '.join((*_NUMBERS, *_TEXTS, 'until'))}")
        if value is not None:
            if not isinstance(value, (str, int, float)) or isinstance(value, bool):
                raise TypeError(f"{name} must be a text or a number here, not a {type(value).__name__}")
            listed.append(f"--{name.replace('_', '-')}={value}")  # one word, because a value may begin with a dash
    _parser(_Raising).parse_args(listed)
    return listed


def main(argv: Sequence[str] | None = None) -> int:
    """Drain as the arguments say, and return the exit code."""
    from sluicegate.core import json
    from sluicegate.draining.handler import import_handler
    from sluicegate.errors import ConfigurationError, DrainFailedError

    parser = _parser()
    given = vars(parser.parse_args(argv))
    try:
        queue = _queue(given)
        process = import_handler(given["process"])
    except ConfigurationError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)  # noqa: T201  # a program's own words
        return 2
    wanted = (*_NUMBERS, *_TEXTS, "until")
    options = {name: given[name] for name in wanted if given[name] is not None}
    try:
        summary, code = _drain(queue, process, options), 0
    except ConfigurationError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)  # noqa: T201  # the same
        return 2
    except DrainFailedError as failed:
        summary, code = failed.summary, _FAILED_MESSAGES
        print(f"{parser.prog}: {failed}", file=sys.stderr)  # noqa: T201  # the same
    print(json.dumps(summary.to_dict()).decode(), flush=True)  # noqa: T201  # the result
    return code


class _Raising(argparse.ArgumentParser):
    """This parser raises instead of ending the process, for callers that are not programs."""

    def error(self, message: str) -> NoReturn:
        from sluicegate.errors import ConfigurationError

        raise ConfigurationError(message)


def _parser(made_of: type[argparse.ArgumentParser] = argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser = made_of(prog="sluicegate-submit", description="Drain a queue with Spark.")
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--spec", help="the queue as JSON, from queue.spec().to_json()")
    place.add_argument("--url", help="where Redis is; a password as ?password_env=NAME, never in the URL itself")
    parser.add_argument("--queue", help="the queue's name, with --url")
    parser.add_argument("--process", required=True, metavar="MODULE:FUNCTION", help="the handler")
    for name, kind in _NUMBERS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind)
    for name in _TEXTS:
        parser.add_argument(f"--{name.replace('_', '-')}")
    parser.add_argument("--until", type=_until, help="empty (the default), deadline, or a number of messages")
    return parser


def _until(text: str) -> str | int:
    if text in ("empty", "deadline"):
        return text
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be empty, deadline or a number, not {text!r}") from None


def _queue(given: dict[str, Any]) -> Any:
    from sluicegate import QueueSpec, RedisMessageQueue
    from sluicegate.errors import ConfigurationError

    if given["spec"] is not None:
        return RedisMessageQueue.from_spec(QueueSpec.from_json(given["spec"]))
    if given["queue"] is None:
        raise ConfigurationError("--url needs --queue, the name of the queue")
    queue = RedisMessageQueue(given["queue"], url=given["url"])
    queue.spec()  # refuses a queue that cannot be serialized, before a session starts
    return queue


def _drain(queue: Any, process: Callable[..., object], options: dict[str, Any]) -> Any:
    from pyspark.sql import SparkSession

    from sluicegate.spark import drain

    spark = SparkSession.builder.appName(f"sluicegate: drain {queue.name}").getOrCreate()
    try:
        return drain(spark, queue, process, **options)
    finally:
        spark.stop()


if __name__ == "__main__":
    # Python puts this file's folder first, where `context` and `summary` would hide modules of those names.
    here = Path(__file__).resolve().parent
    sys.path[:] = [path for path in sys.path if not path or Path(path).resolve() != here]
    sys.exit(main())
