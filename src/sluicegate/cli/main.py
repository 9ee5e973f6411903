"""Runs `sluicegate COMMAND`."""

from __future__ import annotations

from importlib.metadata import version

import typer

__all__ = ["main"]

app = typer.Typer(no_args_is_help=True, help="Publish into Redis queues, look at them, drain and administer them.")


@app.callback()
def _root() -> None:
    """Publish into Redis queues, look at them, drain and administer them."""


@app.command("version")
def _version() -> None:
    """Print the version of the library."""
    typer.echo(version("sluicegate"))


def main() -> None:
    """Run the command that the arguments name."""
    app()
