"""Start, stop and look at the embedded server of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import quote

import typer

from sluicegate.cli.context import Cli
from sluicegate.cli.exits import ExitCode

if TYPE_CHECKING:
    from sluicegate.embedded import EmbeddedServer

__all__ = ["COMMANDS"]

_Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the server keeps its data.", show_default=False)]


def start(
    cli: Cli,
    folder: _Folder,
    fsync: Annotated[
        Literal["everysec", "always"], typer.Option("--fsync", help="When writes reach the disk.")
    ] = "everysec",
    idle_seconds: Annotated[
        float, typer.Option("--idle-seconds", help="How long it runs without a client before it stops by itself.")
    ] = 3600.0,
    server: Annotated[
        Path | None, typer.Option("--server", help="The server program.", show_default="the newest that is found")
    ] = None,
) -> None:
    """Start the server of a folder, or join it if it runs, and print the URL for --url.

    It stops by itself once no client was connected for the idle time; its data stays in the folder.
    """
    from sluicegate.embedded import ensure_server

    _print(cli, ensure_server(folder, fsync=fsync, idle_seconds=idle_seconds, server=server))


def stop(cli: Cli, folder: _Folder) -> int:
    """Save and stop the server of a folder, even if it is in use; the exit code is 1 if none runs."""
    from sluicegate.embedded import stop_server

    stopped = stop_server(folder)
    cli.output.show({"folder": str(folder), "stopped": stopped})
    cli.output.line("stopped" if stopped else "not running")
    return ExitCode.DONE if stopped else ExitCode.FINDING


def status(cli: Cli, folder: _Folder) -> int:
    """Show whether the server of a folder runs, and where; the exit code is 1 if none runs."""
    from sluicegate.embedded import find_running

    running = find_running(folder)
    if running is None:
        cli.output.show({"folder": str(folder), "running": False})
        cli.output.line("not running")
        return ExitCode.FINDING
    _print(cli, running)
    return ExitCode.DONE


def _print(cli: Cli, running: EmbeddedServer) -> None:
    url = f"embedded://{quote(str(running.folder))}"
    values: dict[str, Any] = {
        "url": url,
        "running": True,
        "folder": str(running.folder),
        "socket": str(running.socket_path),
        "pid": running.pid,
        "version": running.version,
    }
    cli.output.show(
        values,
        [
            ("url", url),
            ("socket", str(running.socket_path)),
            ("server", f"Redis {running.version}, process {running.pid}"),
        ],
        title=f"running on {running.folder}",
    )


COMMANDS = {"start": start, "stop": stop, "status": status}
