"""Serves the web page of queues, streams and job lists."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Annotated, Any

import typer

from sluicegate.cli.context import Cli
from sluicegate.cli.places import Targets, configured_places
from sluicegate.cli.serving import check_address, needs_extra, one_redis
from sluicegate.errors import ConfigurationError

__all__ = ["ui"]

_TOKEN = "SLUICEGATE_TOKEN"  # noqa: S105  (the name of a variable)
_KNOWN = {"masks": list, "read_only": bool, "token_env": str, "title": str, "origins": list, "open_health": bool}


def ui(
    cli: Cli,
    targets: Targets,
    host: Annotated[str, typer.Option("--host", help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="Its port.")] = 8080,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Refuse everything that would change a queue.")
    ] = False,
    masks: Annotated[
        list[str] | None,
        typer.Option("--mask", help="Hide a field of payloads and headers, such as card.number; repeatable."),
    ] = None,
    root_path: Annotated[str, typer.Option("--root-path", help="Where a proxy shows the page, such as /queues.")] = "",
    certificate: Annotated[Path | None, typer.Option("--certificate", help="For HTTPS, a PEM file.")] = None,
    key: Annotated[Path | None, typer.Option("--key", help="Of the certificate.")] = None,
    proxies: Annotated[
        str | None, typer.Option("--proxies", help="Addresses whose X-Forwarded headers are believed.")
    ] = None,
) -> None:
    """Serve the web page of queues, streams and job lists, until Ctrl-C or SIGTERM.

    Whoever opens it needs the token in SLUICEGATE_TOKEN. Without that variable, the command makes a token and prints
    it.
    """
    with needs_extra("web"):
        from sluicegate.web import TokenAccess, create_app, serve

    from sluicegate.health import HealthLimits

    for path in (certificate, key):
        if path is not None and not path.is_file():
            raise ConfigurationError(f"there is no file {str(path)!r}")
    check_address(host, port)
    settings = _settings(cli)
    wanted = targets or configured_places(cli)
    token, made = _token(settings)
    app = create_app(
        gateway=one_redis(cli, wanted),
        places=[target.place for target in wanted] or None,
        gates=cli.settings.gates,
        access=TokenAccess(token),
        read_only=read_only or settings.get("read_only", False),
        masks=[*settings.get("masks", ()), *(masks or ())],
        title=settings.get("title", "Sluicegate"),
        origins=settings.get("origins", ()),
        open_health=settings.get("open_health", False),
        health=HealthLimits.of(cli.settings.health) if cli.settings.health else None,
    )
    scheme = "https" if certificate else "http"
    where = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/"
    shown = {"url": where, **({"token": token} if made else {})}
    cli.output.show(shown, [("page", where), *([("token", token)] if made else [])])
    serve(app, host=host, port=port, root_path=root_path, certificate=certificate, key=key, proxies=proxies)


def _token(settings: dict[str, Any]) -> tuple[str, bool]:
    """Return the token, and whether it was made here."""
    name = settings.get("token_env", _TOKEN)
    given = os.environ.get(name)
    if given:
        return given, False
    if "token_env" in settings:
        raise ConfigurationError(f"the configuration file names the variable {name} for the page's token; set it")
    return secrets.token_urlsafe(24), True


def _settings(cli: Cli) -> dict[str, Any]:
    """Return the table `web` of the configuration file.

    Raises:
        ConfigurationError: an entry that there is not, or of another type.
    """
    for name, value in cli.settings.web.items():
        if name not in _KNOWN:
            raise ConfigurationError(f"the configuration file has web.{name}; there are {', '.join(_KNOWN)}")
        if not isinstance(value, _KNOWN[name]):
            kind = {"list": "a list of texts", "bool": "true or false", "str": "a text"}[_KNOWN[name].__name__]
            raise ConfigurationError(f"the configuration file: web.{name} must be {kind}")
    return dict(cli.settings.web)
