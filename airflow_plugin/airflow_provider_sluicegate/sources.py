"""Read message files, JSON lines or CSV, plain or compressed, one message at a time."""

from __future__ import annotations

import csv
import gzip
import io
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sluicegate.core import json
from sluicegate.errors import ConfigurationError, RedisMessageQueueError

__all__ = ["MalformedMessageFileError", "MessageFile"]

_JSON_LINES, _CSV = (".jsonl", ".ndjson", ".json"), (".csv",)
_COMPRESSED = (".gz", ".zip")
_KNOWN = f"{', '.join(_JSON_LINES + _CSV)}, each also with {' or '.join(_COMPRESSED)}"
_MAX_LINE_BYTES = 64 * 1024 * 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class MalformedMessageFileError(RedisMessageQueueError, ValueError):
    """
    A message file cannot be read further: a line holds no message, or the file itself is damaged.

    :ivar path: the path of the file.
    :ivar line: the number of the line, counted from 1; None when the error is about the file as a whole.
    """

    def __init__(self, path: Path, line: int | None, reason: str) -> None:
        super().__init__(f"{path}, line {line}: {reason}" if line is not None else f"{path}: {reason}")
        self.path = path
        self.line = line


@dataclass(frozen=True, slots=True)
class MessageFile:
    """
    Iterates over a file of messages; yields line numbers and messages and holds one line at a time.

    The name determines the format: ``.jsonl``, ``.ndjson`` and ``.json`` hold one JSON object or array per line,
    ``.csv`` holds a header and rows, whose cells stay text. Either may be compressed with ``.gz`` or be the only member
    of a ``.zip``. Text is UTF-8, with or without a byte order mark. Blank lines are skipped. An empty file holds no
    messages.

    :param path: the path of the file.
    :param empty_as_null: read an empty CSV cell as null instead of as an empty text.
    """

    path: Path
    empty_as_null: bool = True

    def check(self) -> None:
        """
        Fail before the first message where reading would fail later.

        :raises FileNotFoundError: there is no such file on this machine.
        :raises ConfigurationError: it is a folder, or its name does not have a known suffix.
        """
        if not self.path.exists():
            raise FileNotFoundError(
                f"{self.path} does not exist on this machine ({os.uname().nodename}); the task reads it where it runs"
            )
        if not self.path.is_file():
            raise ConfigurationError(f"{self.path} is not a file")
        if self._suffix != ".zip":
            self._format(self.path.name)
        elif len(self.path.suffixes) > 1:
            self._format(self.path.stem)

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        """
        Yield the number of the line on which each message ends, and the message.

        :raises MalformedMessageFileError: at the first line that holds no message, or when the file is damaged.
        """
        with self._open() as (name, stream):
            form = self._format(name)
            yield from self._rows(stream) if form == ".csv" else self._json_lines(stream, form)

    @property
    def _suffix(self) -> str:
        return self.path.suffix.lower()

    def _format(self, name: str) -> str:
        bare = name[: -len(self.path.suffix)] if name == self.path.name and self._suffix in _COMPRESSED else name
        suffix = Path(bare).suffix.lower()
        if suffix in _CSV:
            return ".csv"
        if suffix in _JSON_LINES:
            return suffix
        raise ConfigurationError(f"the name of {self.path} does not say its format; the known suffixes are {_KNOWN}")

    @contextmanager
    def _open(self) -> Iterator[tuple[str, IO[bytes]]]:
        """Open the file; give the name that determines the format, and the decompressed bytes."""
        try:
            if self._suffix == ".gz":
                with gzip.open(self.path, "rb") as stream:
                    yield self.path.name, stream  # type: ignore[misc]
            elif self._suffix == ".zip":
                with zipfile.ZipFile(self.path) as archive:
                    member = self._only_member(archive)
                    with archive.open(member) as stream:
                        yield (self.path.stem if len(self.path.suffixes) > 1 else member.filename), stream
            else:
                with self.path.open("rb") as stream:
                    yield self.path.name, stream
        except (gzip.BadGzipFile, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            raise MalformedMessageFileError(self.path, None, f"the file is damaged or cut short: {error}") from error

    def _only_member(self, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
        members = [member for member in archive.infolist() if not member.is_dir()]
        members = [member for member in members if not member.filename.startswith("__MACOSX/")]
        if len(members) != 1:
            names = ", ".join(member.filename for member in members[:5]) + (", …" if len(members) > 5 else "")
            raise MalformedMessageFileError(
                self.path, None, f"an archive must hold one file, and this one holds {len(members)} ({names or 'none'})"
            )
        if members[0].flag_bits & 1:
            raise MalformedMessageFileError(self.path, None, "the archive is encrypted; decrypt it first")
        return members[0]

    def _json_lines(self, stream: IO[bytes], form: str) -> Iterator[tuple[int, Any]]:
        number = 0
        while line := stream.readline(_MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > _MAX_LINE_BYTES:
                raise self._malformed(number, f"the line is longer than {_MAX_LINE_BYTES} bytes")
            if number == 1:
                line = line.removeprefix(_BYTE_ORDER_MARK)
            if line.isspace() or not line:
                continue
            value = self._json(line, number)
            if number == 1 and form == ".json" and isinstance(value, list):
                raise self._malformed(
                    number, "the file is one JSON array; write one object per line, for instance with jq -c '.[]'"
                )
            yield number, value

    def _json(self, line: bytes, number: int) -> Any:
        try:
            value = json.loads(line)
        except ValueError as error:
            # The cause holds the line itself, which may be personal; it stays out of the log.
            reason = f"not JSON: {getattr(error, 'msg', None) or type(error).__name__}"
            if number == 1 and line.lstrip().startswith((b"[", b"{")):
                reason += "; a file has one whole object per line, not one document over many lines"
            raise self._malformed(number, reason) from None
        if not isinstance(value, (dict, list)):
            raise self._malformed(number, f"a message is a JSON object or array, not {type(value).__name__}")
        return value

    def _rows(self, stream: IO[bytes]) -> Iterator[tuple[int, dict[str, str | None]]]:
        rows = csv.reader(io.TextIOWrapper(stream, encoding="utf-8-sig", newline=""), strict=True)
        empty = None if self.empty_as_null else ""
        try:
            header = next(rows, None)
            if header is None:
                return
            self._check_header(header, rows.line_num)
            for row in rows:
                if len(row) != len(header):
                    if not row:
                        continue
                    raise self._malformed(rows.line_num, f"the row has {len(row)} cells, the header {len(header)}")
                yield rows.line_num, {name: cell or empty for name, cell in zip(header, row, strict=True)}
        except csv.Error as error:
            raise self._malformed(rows.line_num, f"not CSV: {error}") from None
        except UnicodeDecodeError:
            raise self._malformed(rows.line_num + 1, "not UTF-8, on this line or one shortly after it") from None

    def _check_header(self, header: list[str], line: int) -> None:
        twice = sorted({name for name in header if header.count(name) > 1})
        if twice:
            raise self._malformed(line, f"the header has {', '.join(map(repr, twice))} more than once")

    def _malformed(self, line: int, reason: str) -> MalformedMessageFileError:
        return MalformedMessageFileError(self.path, line, reason)
