"""Runs `sluicegate COMMAND`, and turns every error of a user into one line and an exit code."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import Annotated, Any

import typer
from typer.main import get_command

from sluicegate import __version__
from sluicegate.cli.coercion import coerce_plainly
from sluicegate.cli.exits import ExitCode, exit_code_of
from sluicegate.cli.loading import RootGroup
from sluicegate.cli.options import Config, StoppedError, Url
from sluicegate.cli.output import Output, print_error

__all__ = ["main", "run"]

_TRACEBACK = "SLUICEGATE_TRACEBACK"
_LINK = "See https://"  # the note of an error that says where the documentation explains it
# The base classes of what typer raises about arguments; they are click's, or typer's own copies of them.
_ArgumentError: type[Exception] = typer.BadParameter.__bases__[0].__bases__[0]

app = typer.Typer(
    cls=RootGroup,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sluicegate {__version__}")
        raise typer.Exit


@app.callback(
    invoke_without_command=True,
    epilog="Exit codes: 0 done, 1 a finding, 2 wrong use, 3 Redis cannot be reached, 4 refused, 5 lease lost.",
)
def _root(
    context: typer.Context,
    url: Url = None,
    config: Config = None,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Publish into Redis queues, look at them, drain and administer them."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(ExitCode.USAGE)


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code; errors of the user are printed, never raised.

    Args:
        arguments: the command's name and what follows.
    """
    try:
        code = _call(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _discard_output()
        return ExitCode.BROKEN_PIPE
    except KeyboardInterrupt:
        with suppress(OSError):
            sys.stderr.write("\n" if sys.stderr.isatty() else "")
        return ExitCode.INTERRUPTED


def _call(arguments: Sequence[str]) -> int:
    try:
        return _invoke(arguments)
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except _ArgumentError as error:
        return _report_usage(error, arguments)
    except typer.Abort:
        return ExitCode.INTERRUPTED
    except _Terminated:
        return ExitCode.TERMINATED
    except Exception as error:
        code = exit_code_of(error)
        if os.environ.get(_TRACEBACK):
            raise
        _report(error, code, arguments)
        return ExitCode.INTERNAL if code is None else code


def _invoke(arguments: Sequence[str]) -> int:
    try:
        root = get_command(app)
        coerce_plainly(*root.params)
        result = root.main([*arguments], prog_name="sluicegate", standalone_mode=False)
    except StoppedError as stopped:
        raise stopped.reason from None
    return int(result or 0)


def _report_usage(error: Any, arguments: Sequence[str]) -> int:
    """Print what is wrong with the arguments, and where their description is."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "sluicegate"
    print_error(error.format_message(), "UsageError", as_json=_as_json(arguments), hint=f"See `{path} --help`.")
    return ExitCode.USAGE


def _report(error: Exception, code: ExitCode | None, arguments: Sequence[str]) -> None:
    """Print an error in one line, with its notes."""
    if code is None:
        print_error(
            f"{type(error).__name__} inside sluicegate, which is a bug; please report it with what "
            f"{_TRACEBACK}=1 shows",
            type(error).__name__,
            as_json=_as_json(arguments),
        )
        return
    text = str(error)
    if type(error).__name__ == "GroupNotFoundError":
        text = "the stream has no such group; `claim` and `drain` create it with --start beginning, end or an id"
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        text = f"{error.filename}: {error.strerror}"
    notes: list[str] = getattr(error, "__notes__", [])
    links = [note for note in notes if note.startswith(_LINK)]
    notes = [note for note in notes if note not in links]
    text = "; ".join([text or type(error).__name__, *notes])
    print_error(text, type(error).__name__, as_json=_as_json(arguments), hint="; ".join(links))


def _as_json(arguments: Sequence[str]) -> bool:
    """Return whether `--json` is among the options; behind `--` it is not ours."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in own


def _discard_output() -> None:
    """Let nothing more be written, since whoever reads the output is gone."""
    with suppress(OSError, ValueError):
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())


class _LogLines(logging.Handler):
    """Prints what the library logs, a line each."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record, with the error that belongs to it but without its traceback."""
        error = record.exc_info[1] if record.exc_info else None
        reason = "" if error is None else f": {type(error).__name__}: {error}"
        Output(as_json=False).warn(f"{record.getMessage()}{reason}")


class _Terminated(BaseException):
    """SIGTERM arrived: what is held is released on the way out."""


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    raise _Terminated


def main() -> int:
    """Run the command that the arguments name, and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a replaced stream may lack it
    gc.set_threshold(50_000)  # the imports make many objects and no garbage
    logging.getLogger("sluicegate").addHandler(_LogLines())
    with suppress(ValueError):
        signal.signal(signal.SIGTERM, _terminate)
    return run(sys.argv[1:])
