"""Publishes messages from files or stdin."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from sluicegate.bulk.message_file import FORMATS, MessageFile, Named
from sluicegate.cli.context import Cli
from sluicegate.cli.exits import ExitCode, exit_code_of
from sluicegate.cli.output import Bar, Cell
from sluicegate.cli.parsing import durability_of, headers_of, parse_seconds
from sluicegate.cli.places import Target
from sluicegate.cli.text import count, counted, duration, size
from sluicegate.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sluicegate.bulk.publisher import Publisher

__all__ = ["publish"]

_BATCH = 1000


def publish(
    cli: Cli,
    target: Target,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="JSON lines, CSV or Parquet; .jsonl and .csv also with .gz or .zip. Without any, or as -: stdin.",
            show_default=False,
        ),
    ] = None,
    message: Annotated[
        list[str] | None,
        typer.Option(
            "--message", "-m", metavar="JSON", help="A message instead of files; may be repeated.", show_default=False
        ),
    ] = None,
    format: Annotated[  # noqa: A002  (the option's name)
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="jsonl, csv, parquet or text (a line each, as it is); default: by the name, jsonl for stdin.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            metavar="FIELD",
            help="The deduplication key: a field, several, or a template such as {tenant}:{order_id}.",
            show_default=False,
        ),
    ] = None,
    window: Annotated[
        float,
        typer.Option(parser=parse_seconds, metavar="DURATION", help="How long a key refuses duplicates."),
    ] = 3600,
    batch_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Publish all as one batch of a queue; a repeat publishes only what is missing.",
            show_default=False,
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A header of every message; may be repeated.", show_default=False),
    ] = None,
    delay: Annotated[
        float, typer.Option(parser=parse_seconds, metavar="DURATION", help="How long the messages cannot be claimed.")
    ] = 0,
    durability: Annotated[
        str, typer.Option(metavar="KIND", help="What each call waits for: memory, fsync or replicated:N.")
    ] = "memory",
    batch_size: Annotated[int, typer.Option(metavar="N", help="Messages per call, up to 1,000.")] = _BATCH,
    empty_as_text: Annotated[
        bool, typer.Option("--empty-as-text", help="Publish an empty CSV cell as an empty text instead of null.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read everything, check it, and publish nothing.")] = False,
) -> int:
    """Publish messages from files or stdin, one batch in memory at a time.

    With --key or --batch-id it may be repeated after a failure: what was published is not published again. An error
    names the line and says how many messages were published before it.
    """
    inputs = _inputs(files, message, format, empty_as_text=empty_as_text)
    if batch_id is not None and len(inputs) > 1:
        raise ConfigurationError("--batch-id needs one input, whose order stays; publish the files one by one")
    if target.kind in ("group", "jobs"):
        raise ConfigurationError(
            f"{target}: {'publish to its stream' if target.kind == 'group' else 'jobs are enqueued by a program'}"
        )
    work = _Work(cli, target, batch_id=batch_id, batch_size=batch_size, dry_run=dry_run)
    keys = [*(key or [])]
    options: dict[str, Any] = {"get_deduplication_key": keys[0] if len(keys) == 1 else keys} if keys else {}
    queue = target.open(
        gateway=cli.gateway(target.url, retry_budget_seconds=120), deduplication_window_seconds=window, **options
    )
    return work.run(
        queue, inputs, headers=headers_of(header), delay_seconds=delay, durability=durability_of(durability)
    )


@dataclass(frozen=True, slots=True)
class _Stdin:
    """Names the standard input in errors."""

    name: str = "stdin"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class _Input(MessageFile):
    """A file, or the standard input.

    Attributes:
        opened: the open file.
    """

    opened: list[IO[bytes]] = field(default_factory=list, compare=False, repr=False)

    def check_is_file(self) -> None:
        """Fail where opening would fail later; the standard input is open."""
        if not isinstance(self.path, _Stdin):
            MessageFile.check_is_file(self)

    def open_file(self) -> IO[bytes]:
        """Open the file for reading."""
        if not isinstance(self.path, _Stdin):
            self.opened.append(MessageFile.open_file(self))
            return self.opened[0]
        if self.format == "parquet":  # whose end is read first
            import io

            return io.BytesIO(sys.stdin.buffer.read())
        return sys.stdin.buffer

    def share_read(self) -> float | None:
        """Return which part of a file was read; None where that is not known."""
        if not self.opened or self.opened[0].closed or self.format == "parquet" or self.path.name.endswith(".parquet"):
            return None
        return self.opened[0].tell() / max(1, Path(str(self.path)).stat().st_size)


@dataclass(frozen=True, slots=True)
class _Given:
    """The messages of `--message`."""

    texts: list[str]

    def check(self) -> None:
        """Fail on the first that is no JSON object or array."""
        list(self)

    def describe(self, number: int) -> str:
        """Return which message it is."""
        return f"--message number {number}"

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        from sluicegate.core import json

        for number, text in enumerate(self.texts, 1):
            try:
                value = json.loads(text)
            except ValueError:
                raise ConfigurationError(
                    f"--message number {number} is not JSON; quote it for the shell, such as '{{\"id\": 7}}'"
                ) from None
            yield number, value if isinstance(value, (dict, list)) else text


def _inputs(
    files: list[str] | None, message: list[str] | None, form: str | None, *, empty_as_text: bool
) -> list[_Input | _Given]:
    """Return what is read.

    Raises:
        ConfigurationError: an input that cannot be read, or none.
    """
    if form is not None and form not in FORMATS:
        raise ConfigurationError(f"--format must be one of {', '.join(FORMATS)}, not {form!r}")
    if message:
        if files:
            raise ConfigurationError("give either files or --message")
        inputs: list[_Input | _Given] = [_Given(message)]
    else:
        inputs = [_input(name, form, empty_as_text=empty_as_text) for name in files or ["-"]]
    for one in inputs:
        one.check()
    return inputs


def _input(name: str, form: str | None, *, empty_as_text: bool) -> _Input:
    if name == "-":
        if sys.stdin.isatty():
            raise ConfigurationError("there is nothing on stdin; name a file, give --message, or pipe JSON lines in")
        return _Input(_Stdin(), not empty_as_text, form or "jsonl")
    path: Named = Path(name)
    return _Input(path, not empty_as_text, form)


class _Work:
    """Publishes the inputs one after the other, with a bar, and prints what became of them."""

    def __init__(self, cli: Cli, target: Target, *, batch_id: str | None, batch_size: int, dry_run: bool) -> None:
        self._cli = cli
        self._target = target
        self._batch_id = batch_id
        self._batch_size = batch_size
        self._dry_run = dry_run
        self._totals = {"published": 0, "duplicates": 0, "batches": 0, "bytes": 0}

    def run(self, queue: Any, inputs: list[_Input | _Given], **options: Any) -> int:
        """Publish everything; returns the exit code."""
        import time

        from sluicegate.bulk.publisher import PublishStoppedError

        started, stopped = time.monotonic(), None
        with self._cli.output.progress(f"publish to {self._target}", _size_of(inputs)) as bar:
            for one in inputs:
                try:
                    self._publish(queue, one, bar, options)
                except PublishStoppedError as error:
                    stopped = error
                    break
        self._print(time.monotonic() - started, stopped=stopped is not None)
        if stopped is None:
            return ExitCode.DONE
        code = exit_code_of(stopped.__cause__) if stopped.__cause__ is not None else None
        self._cli.fail(stopped)
        if stopped.is_permanent and code in (None, ExitCode.FINDING):
            return ExitCode.USAGE
        return code or ExitCode.FINDING

    def _publish(self, queue: Any, one: _Input | _Given, bar: Bar, options: Mapping[str, Any]) -> None:
        from sluicegate.bulk.publisher import Publisher
        from sluicegate.bulk.reader import Reader

        is_file = not isinstance(one, _Given) and not isinstance(one.path, _Stdin)
        reader = Reader(one, one.describe, None, self._batch_size, is_at_hand=is_file or isinstance(one, _Given))
        if self._dry_run:
            self._check(queue, reader, bar)
            return
        log = _Progress(bar, one.share_read if is_file and isinstance(one, _Input) else lambda: None)
        publisher = Publisher(queue, reader, log, 0.1, place=self._target.place, batch_id=self._batch_id)
        log.publisher = publisher
        try:
            publisher.run(batch_size=self._batch_size, **options)
        except BaseException as error:
            if isinstance(error, Exception):
                raise
            self._cli.output.note(
                f"{self._target}: interrupted after {counted(publisher.published, 'message')}; the current batch may "
                f"be published too; {publisher.advice('running it again', may_have_published=True)}"
            )
            raise
        finally:
            self._totals["published"] += publisher.published
            self._totals["duplicates"] += publisher.duplicates
            self._totals["batches"] += publisher.batches
            self._totals["bytes"] += publisher.size_bytes

    def _check(self, queue: Any, reader: Any, bar: Bar) -> None:
        """Encode every message as a publish would, and send nothing."""
        from sluicegate._session import new_id
        from sluicegate.bulk.publisher import PublishStoppedError

        try:
            publishing = queue.session.publishing
            for batch in publishing.batches(reader.messages(publishing), new_id=new_id, most=self._batch_size):
                self._totals["published"] += len(batch.parts)
                self._totals["batches"] += 1
                self._totals["bytes"] += batch.size_bytes
                bar.update(self._totals["published"])
        except (ValueError, TypeError, OSError) as error:
            raise PublishStoppedError(
                reader.explain(error),
                published=0,
                duplicates=0,
                batches=0,
                is_permanent=reader.is_permanent(error),
            ) from error

    def _print(self, seconds: float, *, stopped: bool) -> None:
        totals = self._totals
        rate = totals["published"] / seconds if seconds else 0
        record = {
            **self._target.identity(),
            "dry_run": self._dry_run,
            "complete": not stopped,
            **totals,
            "seconds": round(seconds, 3),
            "batch_id": self._batch_id,
        }
        verb = "valid, and not published" if self._dry_run else "published"
        facts: list[tuple[str, str | Cell]] = [
            (verb, Cell(f"{counted(totals['published'], 'message')}, {size(totals['bytes'])}", "bold")),
            ("duplicates", f"{count(totals['duplicates'])} refused"),
            ("time", f"{duration(seconds)}, {rate:,.0f} messages/s"),
        ]
        if stopped and not totals["published"] and not self._cli.output.as_json:
            return
        self._cli.output.show(record, facts[:1] if self._dry_run else facts, title=str(self._target))


class _Progress:
    """Moves the bar whenever the publisher reports progress."""

    def __init__(self, bar: Bar, share: Callable[[], float | None]) -> None:
        self._bar = bar
        self._share = share
        self.publisher: Publisher | None = None

    def info(self, event: str, *args: Any) -> None:
        """Show the counts."""
        logging.getLogger("sluicegate").debug(event, *args)
        if self.publisher is not None:
            duplicates = self.publisher.duplicates
            note = f"{count(duplicates)} duplicates" if duplicates else ""
            self._bar.update(self.publisher.published + duplicates, note, share=self._share())


def _size_of(inputs: list[_Input | _Given]) -> int | None:
    """Return the number of messages where it is known before reading."""
    return sum(len(one.texts) for one in inputs if isinstance(one, _Given)) or None
