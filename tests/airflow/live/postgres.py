"""A PostgreSQL server of its own for one deployment."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

from tests.support.components import Component
from tests.support.servers import free_port
from tests.support.waiting import wait_until

MISSING = "Airflow on PostgreSQL (apt-get install postgresql)"


def programs() -> Path | None:
    """Return the folder of the server's programs, which Debian does not put on the path; None without a server."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return installed[-1].parent if installed else None


class PostgresServer:
    """A server on a TCP port with an empty database; `remove` deletes its folder."""

    def __init__(self) -> None:
        found = programs()
        assert found is not None, MISSING
        self._programs = found
        # The server refuses to run as root; Debian's package brings a user for it.
        self._user = "postgres" if os.geteuid() == 0 else None
        self._port = free_port()
        self._password = secrets.token_hex(16)
        self._folder = Path(tempfile.mkdtemp(prefix="sg-pg-"))
        options = {"port": self._port, "unix_socket_directories": self._folder, "fsync": "off"}
        command = [found / "postgres", "-D", self._folder / "data"]
        command += [text for name, value in options.items() for text in ("-c", f"{name}={value}")]
        self._server = Component("postgres", command, self._environment, self._folder, self._user)

    @property
    def url(self) -> str:
        """Return the database as SQLAlchemy names it."""
        return f"postgresql+psycopg2://airflow:{self._password}@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        """Make the database and start the server."""
        password = self._folder / "password"
        password.write_text(self._password)
        if self._user:
            for path in (self._folder, password):
                shutil.chown(path, self._user, self._user)
        subprocess.run(
            [
                *(self._programs / "initdb", "-D", self._folder / "data", "--no-sync"),
                *("--auth=scram-sha-256", "--username=airflow", f"--pwfile={password}"),
            ],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            check=True,
            user=self._user,
            group=self._user,
            extra_groups=() if self._user else None,
        )
        self._server.start()
        wait_until(self._accepts, "PostgreSQL accepts connections")

    def remove(self) -> None:
        """Stop the server and delete its folder."""
        self._server.stop()
        shutil.rmtree(self._folder)

    @property
    def _environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}

    def _accepts(self) -> bool:
        self._server.check()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0
