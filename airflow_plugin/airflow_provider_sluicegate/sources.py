"""Message files where a task finds them: on its machine, or in an object store that Airflow knows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import IO

from airflow_provider_sluicegate.storage import StoredFile, check_is_file, open_file
from sluicegate.bulk.message_file import MalformedMessageFileError
from sluicegate.bulk.message_file import MessageFile as AnyMessageFile

__all__ = ["MalformedMessageFileError", "MessageFile"]


@dataclass(frozen=True, slots=True)
class MessageFile(AnyMessageFile):
    """
    Iterates over a file of messages, as the queue's own does, from a path or an object store.

    :param path: the path of the file.
    """

    path: Path | StoredFile

    def check_is_file(self) -> None:
        """
        Fail where opening would fail later, and say why.

        :raises FileNotFoundError: there is no such file.
        :raises ConfigurationError: it is a folder, or its filesystem is not there.
        """
        check_is_file(self.path)

    def open_file(self) -> IO[bytes]:
        """Open the file for reading; one in an object store is read in blocks, as they are needed."""
        return open_file(self.path)
