"""Serves the page with uvicorn."""

from __future__ import annotations

from pathlib import Path

import uvicorn
from fastapi import FastAPI

__all__ = ["serve"]

_LEAVE_SECONDS = 2  # for connections with events, which would otherwise keep the server from ending


def serve(
    app: FastAPI,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    root_path: str = "",
    certificate: Path | None = None,
    key: Path | None = None,
    log_level: str = "warning",
    proxies: str | None = None,
) -> None:
    """Serve the page until the process gets SIGINT or SIGTERM.

    Args:
        app: from `create_app`.
        host: address to listen on.
        port: of it.
        root_path: where a proxy shows the page, if it removes that part of the path.
        certificate: for HTTPS, a file in PEM format.
        key: of the certificate.
        log_level: of uvicorn.
        proxies: addresses whose `X-Forwarded-` headers are believed, separated by commas.
    """
    uvicorn.run(
        app,
        host=host,
        port=port,
        root_path=root_path,
        ssl_certfile=certificate,
        ssl_keyfile=None if key is None else str(key),
        log_level=log_level,
        access_log=False,
        server_header=False,
        forwarded_allow_ips=proxies,
        timeout_graceful_shutdown=_LEAVE_SECONDS,
    )
