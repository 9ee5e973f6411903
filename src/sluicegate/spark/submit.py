"""This program for `spark-submit` drains a queue with a function of yours.

    spark-submit --py-files sluicegate.zip,jobs.zip submit.py --url redis://host?password_env=REDIS_PASSWORD \\
        --queue orders --process jobs.orders:store

`application()` is the path of this file and `arguments()` makes the rest, for whatever submits it. The driver
and the executors need this package, `redis`, `tenacity` and `pyarrow`, and your module. Put a password into a variable
of their environment, never into the arguments, which the cluster shows to everybody.

It prints the summary as one line of JSON. With `--summary-file`, the file gets it instead, for a program that reads it
with `read_outcome()`; if the file's folder does not exist where the driver runs, the line is printed without the texts
of the handler's errors. The exit code is 0 when all is done, 3 when the handler failed on some messages (the summary
lists them; with `--on-failures return` the code is 0), 2 when an argument or option is invalid, and 1 with a traceback
when Spark or Redis failed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from sluicegate.draining.summary import DrainSummary

__all__ = ["Outcome", "application", "arguments", "main", "read_outcome"]

_FAILED_MESSAGES = 3
_NUMBERS = {"partitions": int, "batch_size": int, "lease_seconds": float, "deadline_seconds": float}
_TEXTS = ("run_id", "batch_format", "schema", "column_name_of_corrupt_record")
_OPTIONS = (*_NUMBERS, *_TEXTS, "mode", "until", "remember_empty", "on_failures")


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
        queue: a serializable queue or group of a stream, made from a `url` without a literal password.
        process: the handler as `"module:function"`; it is not imported here.
        **options: options of `drain` under the same names, except `progress`, and `summary_file`; None is left out.

    Raises:
        ConfigurationError: the queue cannot be serialized, its URL has a password, or a name or value is invalid.
        TypeError: `drain` does not have the option, or its value cannot be written as text.
    """
    from sluicegate.draining.handler import split_name

    split_name(process)
    listed = ["--spec", queue.spec().to_json(), "--process", process]
    for name, value in options.items():
        if name not in (*_OPTIONS, "summary_file"):
            raise TypeError(f"submit takes no option {name!r}; it takes {', '.join((*_OPTIONS, 'summary_file'))}")
        if value is not None:
            if not isinstance(value, (str, int, float)) or (isinstance(value, bool) and name != "remember_empty"):
                raise TypeError(f"{name} must be a text or a number here, not a {type(value).__name__}")
            listed.append(f"--{name.replace('_', '-')}={value}")  # one word, because a value may begin with a dash
    _check_mode(vars(_parser(_Raising).parse_args(listed)))
    return listed


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a driver wrote into its `summary_file`.

    Attributes:
        summary: of the drain, also of one whose handler failed on some messages.
        refused: why the driver drained nothing: an argument or option is invalid there.
    """

    summary: DrainSummary | None = None
    refused: str | None = None


def read_outcome(path: Path) -> Outcome:
    """Read the `summary_file` of a driver; the outcome is empty if the driver did not write it."""
    from sluicegate.core import json
    from sluicegate.draining.summary import DrainSummary

    if not path.is_file():
        return Outcome()
    found = json.loads(path.read_bytes())
    summary = found["summary"]
    return Outcome(None if summary is None else DrainSummary.from_dict(summary), found["refused"])


def main(argv: Sequence[str] | None = None) -> int:
    """Drain as the arguments say, and return the exit code."""
    from sluicegate.draining.handler import import_handler
    from sluicegate.errors import ConfigurationError, DrainFailedError

    parser = _parser()
    given = vars(parser.parse_args(argv))
    code = 0
    try:
        _check_mode(given)
        queue = _queue(given)
        process = import_handler(given["process"])
        summary = _drain(queue, process, {name: given[name] for name in _OPTIONS if given[name] is not None})
    except ConfigurationError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)  # noqa: T201  # a program's own words
        _write(given["summary_file"], Outcome(refused=str(error)))
        return 2
    except DrainFailedError as failed:
        print(f"{parser.prog}: {failed}", file=sys.stderr)  # noqa: T201  # the same
        summary, code = failed.summary, _FAILED_MESSAGES
    if not _write(given["summary_file"], Outcome(summary)):
        _show(summary, with_texts=given["summary_file"] is None)
    return code


def _write(path: Path | None, outcome: Outcome) -> bool:
    """Write the outcome, if there is a file to write it to, and return whether there is."""
    from sluicegate.core import json

    if path is None or not path.parent.is_dir():
        return False
    path.write_bytes(json.dumps(asdict(outcome)))
    return True


def _show(summary: DrainSummary, *, with_texts: bool) -> None:
    from sluicegate.core import json

    shown = summary.to_dict()
    if not with_texts:
        for failure in shown["failures"]:
            del failure["error"]  # it may quote a payload, and whoever submits this may keep its output
    print(json.dumps(shown).decode(), flush=True)  # noqa: T201  # the result


class _Raising(argparse.ArgumentParser):
    """This parser raises instead of ending the process, for callers that are not programs."""

    def error(self, message: str) -> NoReturn:
        from sluicegate.errors import ConfigurationError

        raise ConfigurationError(message)


def _parser(made_of: type[argparse.ArgumentParser] = argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser = made_of(prog="sluicegate-submit", description="Drain a queue with Spark.")
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--spec", help="the queue as JSON, from queue.spec().to_json()")
    place.add_argument(
        "--url",
        help="where Redis is, or redis+sluicegate://host?stream=orders&group=billing for a place on it; a password as "
        "?password_env=NAME, never in the URL itself",
    )
    parser.add_argument("--queue", help="the queue's name, with --url")
    parser.add_argument("--stream", help="instead, the stream's name, with --url and --group")
    parser.add_argument("--group", help="the name of the group of the stream")
    parser.add_argument("--process", required=True, metavar="MODULE:FUNCTION", help="the handler")
    for name, kind in _NUMBERS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind)
    for name in _TEXTS:
        parser.add_argument(f"--{name.replace('_', '-')}")
    parser.add_argument("--mode", type=_mode, help="of payloads: FAILFAST (the default), PERMISSIVE or BURY")
    parser.add_argument("--until", type=_until, help="empty (the default), deadline, or a number of messages")
    parser.add_argument("--on-failures", choices=("raise", "return"), help="raise (the default) or return")
    parser.add_argument("--remember-empty", type=_flag, help="true (the default) or false")
    parser.add_argument("--summary-file", type=Path, help="where the summary goes instead of being printed")
    return parser


def _mode(text: str) -> str:
    from sluicegate.errors import ConfigurationError
    from sluicegate.tables.misfits import checked_mode

    try:
        return checked_mode(text)
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _check_mode(given: dict[str, Any]) -> None:
    """Refuse a mode before a session starts."""
    from sluicegate.tables.misfits import check_mode

    column = given["column_name_of_corrupt_record"]
    check_mode(given["mode"] or "FAILFAST", column, has_schema=given["schema"] is not None)


def _flag(text: str) -> bool:
    flags = {"true": True, "false": False}
    if text.lower() not in flags:
        raise argparse.ArgumentTypeError(f"must be true or false, not {text!r}")
    return flags[text.lower()]


def _until(text: str) -> str | int:
    if text in ("empty", "deadline"):
        return text
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be empty, deadline or a number, not {text!r}") from None


def _queue(given: dict[str, Any]) -> Any:
    from sluicegate.errors import ConfigurationError
    from sluicegate.opening import open_place, open_spec
    from sluicegate.place import Place, is_place_url
    from sluicegate.spec import QueueSpec

    url, queue, stream, group = (given[name] for name in ("url", "queue", "stream", "group"))
    named = [f"--{name}" for name in ("queue", "stream", "group") if given[name] is not None]
    if named and (url is None or is_place_url(url)):
        raise ConfigurationError(
            f"{'--spec' if url is None else '--url'} names what to drain already; leave {' and '.join(named)} out"
        )
    if url is None:
        return open_spec(QueueSpec.from_json(given["spec"]))
    if is_place_url(url):
        url, place = Place.parse_url(url)
    elif queue is None and stream is None:
        raise ConfigurationError("--url needs --queue, the name of the queue, or --stream and --group")
    else:
        place = Place.named(queue, stream=stream, group=group)
    if place.stream and place.group is None:
        raise ConfigurationError(f"a drain consumes from a group, and {place} may have several; give --group")
    opened = open_place(place, url=url)
    opened.spec()  # refuses a queue that cannot be serialized, before a session starts
    return opened


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
