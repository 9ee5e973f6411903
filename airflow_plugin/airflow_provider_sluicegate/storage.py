"""Find a file where a path or URL says it is: on this machine, or in an object store that Airflow knows."""

from __future__ import annotations

import io
import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, cast

from airflow_provider_sluicegate.compat import AirflowNotFoundException
from sluicegate.errors import ConfigurationError, OptionTypeError

if TYPE_CHECKING:
    from airflow.sdk import ObjectStoragePath

__all__ = ["StoredFile", "check_is_file", "find_file", "open_file"]

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?:(?P<conn_id>[^@/]*)@)?(?P<key>.*)", re.DOTALL)
_BUFFER_BYTES = 1024 * 1024
_LOCAL = ("", "file", "local")
_PACKAGES = {
    "s3": "apache-airflow-providers-amazon[s3fs]",
    "s3a": "apache-airflow-providers-amazon[s3fs]",
    "gs": "apache-airflow-providers-google",
    "gcs": "apache-airflow-providers-google",
    "abfs": "apache-airflow-providers-microsoft-azure",
    "abfss": "apache-airflow-providers-microsoft-azure",
    "adl": "apache-airflow-providers-microsoft-azure",
}


@dataclass(frozen=True, slots=True)
class StoredFile:
    """
    A file in an object store; its str is its URL.

    :param scheme: of its URL, for which Airflow knows a filesystem.
    :param conn_id: the connection of that filesystem; None for its default one.
    :param key: bucket and name.
    """

    scheme: str
    conn_id: str | None
    key: str

    @property
    def name(self) -> str:
        return PurePosixPath(self.key).name

    def __str__(self) -> str:
        return f"{self.scheme}://{f'{self.conn_id}@' if self.conn_id else ''}{self.key}"

    def filesystem(self) -> Any:
        """
        Return the filesystem that Airflow has for it.

        :raises ConfigurationError: there is none, or the connection is not defined.
        """
        from airflow.sdk.io import attach, has_fs

        try:
            return attach(self.scheme, self.conn_id).fs
        except AirflowNotFoundException:
            raise ConfigurationError(
                f"{self}: connection {self.conn_id!r} is not defined; add it, or correct the URL"
            ) from None
        except ImportError as error:
            raise ConfigurationError(f"{self} cannot be read where the task runs: {error}") from error
        except ValueError:
            if has_fs(self.scheme):
                raise
            package = _PACKAGES.get(self.scheme)
            raise ConfigurationError(
                f"{self} cannot be read: Airflow has no filesystem for {self.scheme}:// where the task runs; "
                + (f"pip install '{package}'" if package else "install the provider of that storage")
            ) from None


def find_file(path: str | os.PathLike[str] | ObjectStoragePath) -> Path | StoredFile:
    """
    Return the file that a path, a URL or an ``ObjectStoragePath`` names. It is not looked for.

    :raises ConfigurationError: the path is empty, or its URL holds a password.
    """
    if hasattr(path, "protocol") and hasattr(path, "conn_id"):
        storage = cast("ObjectStoragePath", path)
        return _file(storage.protocol or "", storage.conn_id, storage.path)
    if not isinstance(path, (str, os.PathLike)):
        raise OptionTypeError(f"path must be a path, a URL or an ObjectStoragePath, not {type(path).__name__}")
    text = os.fspath(path)
    if text.strip() in ("", "None"):
        raise ConfigurationError(f"path is {text!r}; if it is a template, it rendered to nothing")
    url = _URL.fullmatch(text)
    return _file(url["scheme"].lower(), url["conn_id"], url["key"]) if url else Path(text)


def check_is_file(file: Path | StoredFile) -> None:
    """
    Fail where opening would fail later, and say why.

    :raises FileNotFoundError: there is no such file.
    :raises ConfigurationError: it is a folder, or its filesystem is not there.
    """
    if isinstance(file, StoredFile):
        try:
            is_file = file.filesystem().info(file.key)["type"] != "directory"
        except FileNotFoundError:
            raise FileNotFoundError(f"{file} does not exist") from None
    else:
        if not file.exists():
            raise FileNotFoundError(
                f"{file} does not exist on this machine ({os.uname().nodename}); the task reads it where it runs"
            )
        is_file = file.is_file()
    if not is_file:
        raise ConfigurationError(f"{file} is not a file; give the path of one file, or map the task over several")


def open_file(file: Path | StoredFile) -> IO[bytes]:
    """Open a file for reading; one in an object store is read in blocks, as they are needed."""
    if isinstance(file, StoredFile):
        # The files of fsspec have no bound for the length of a line.
        return io.BufferedReader(file.filesystem().open(file.key, "rb"), _BUFFER_BYTES)
    return file.open("rb")


def _file(scheme: str, conn_id: str | None, key: str) -> Path | StoredFile:
    if conn_id and ":" in conn_id:
        raise ConfigurationError(
            f"path is a {scheme}:// URL with a password in it; put both into an Airflow connection, and give its id: "
            f"{scheme}://conn_id@bucket/name"
        )
    if not key:
        raise ConfigurationError(f"path is {scheme}:// without a name; give {scheme}://bucket/name")
    return Path(key) if scheme in _LOCAL else StoredFile(scheme, conn_id or None, key)
