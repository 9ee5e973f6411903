"""Read message files, one message at a time: JSON lines or CSV, plain or compressed, and Parquet."""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import IO, TYPE_CHECKING, Any, Protocol

from sluicegate.bulk import parquet
from sluicegate.core import json
from sluicegate.errors import ConfigurationError, RedisMessageQueueError

if TYPE_CHECKING:
    import pyarrow

__all__ = ["FORMATS", "MalformedMessageFileError", "MessageFile", "Named"]

FORMATS = ("jsonl", "csv", "parquet", "text")
"""What the format of a file can be called where its name does not say it."""

_JSON_LINES, _CSV = (".jsonl", ".ndjson", ".json"), (".csv",)
_COMPRESSED = (".gz", ".zip")
_PARQUET = ".parquet"
_KNOWN = f"{', '.join(_JSON_LINES + _CSV)}, each also with {' or '.join(_COMPRESSED)}, and {_PARQUET}"
_MAX_LINE_BYTES = 64 * 1024 * 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Named(Protocol):
    """What names a file: a path, or a place in an object store, whose str says where it is."""

    @property
    def name(self) -> str: ...


class MalformedMessageFileError(RedisMessageQueueError, ValueError):
    """A message file cannot be read further: a line holds no message, or the file itself is damaged.

    Attributes:
        path: the path of the file.
        line: the number of the line, counted from 1; None when the error is about the file as a whole.
        is_permanent: whether another try would meet it again. A file that is cut short may be one that is still being
            written.
    """

    def __init__(self, path: Named, line: int | None, reason: str, *, is_permanent: bool = True) -> None:
        super().__init__(f"{path}, line {line}: {reason}" if line is not None else f"{path}: {reason}")
        self.path = path
        self.line = line
        self.is_permanent = is_permanent


@dataclass(frozen=True, slots=True)
class MessageFile:
    """Iterates over a file of messages; yields line numbers and messages and holds one line at a time.

    The name determines the format: `.jsonl`, `.ndjson` and `.json` hold one JSON object or array per line, `.csv` holds
    a header and rows, whose cells stay text. Either may be compressed with `.gz` or be the only member of a `.zip`.
    Text is UTF-8, with or without a byte order mark. Blank lines are skipped. An empty file holds no messages.
    `.parquet` holds rows, which become objects; they are numbered, and one row group is held. It needs pyarrow.

    Attributes:
        path: the path of the file.
        empty_as_null: read an empty CSV cell as null instead of as an empty text.
        format: what the file holds, one of `FORMATS`, whatever its name is; None to go by the name. The lines of `text`
            are messages as they are.
    """

    path: Named
    empty_as_null: bool = True
    format: str | None = None

    def check_is_file(self) -> None:
        """Fail where opening would fail later, and say why.

        Raises:
            FileNotFoundError: there is no such file.
            ConfigurationError: it is a folder.
        """
        path = Path(str(self.path))
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist")
        if path.is_dir():
            raise ConfigurationError(f"{path} is a folder; give the path of one file")

    def open_file(self) -> IO[bytes]:
        """Open the file for reading."""
        return Path(str(self.path)).open("rb")

    def describe(self, number: int) -> str:
        """Return the place of a message in the file, such as `orders.csv, line 7`."""
        return f"{self.path}, {'row' if self._is_parquet else 'line'} {number}"

    def check(self) -> None:
        """Fail before the first message where reading would fail later.

        Raises:
            FileNotFoundError: there is no such file.
            ConfigurationError: it is a folder, its name does not have a known suffix, or what is needed to read it is
                not installed.
        """
        self.check_is_file()
        if self._is_parquet:
            parquet.check_can_read(self.path)
        elif self.format is None and self._suffix != ".zip":
            self._format(self.path.name)
        elif self.format is None and self._says_format_of_member:
            self._format(self._name.stem)

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        """Yield the number of the line on which each message ends, and the message.

        Raises:
            MalformedMessageFileError: at the first line that holds no message, or when the file is damaged.
        """
        if self._is_parquet:
            yield from self._parquet_rows()
            return
        with self._open() as (name, stream):
            form = self._format(name) if self.format is None else f".{self.format}"
            if form == ".csv":
                yield from self._rows(stream)
            elif form == ".text":
                yield from self._text_lines(stream)
            else:
                yield from self._json_lines(stream, form)

    @property
    def is_table(self) -> bool:
        """Return whether the file has columns, which `batches` yields."""
        return self._is_parquet

    def batches(self, count: int) -> Iterator[pyarrow.RecordBatch]:
        """Yield the rows of a Parquet file, some of them at a time.

        Raises:
            MalformedMessageFileError: the file is damaged.
        """
        try:
            with self.open_file() as stream:
                yield from parquet.batches(stream, count)
        except parquet.DamagedParquetError as error:
            raise self._damaged(error) from error

    @property
    def _name(self) -> PurePath:
        return PurePath(self.path.name)

    @property
    def _suffix(self) -> str:
        return self._name.suffix.lower()

    @property
    def _is_parquet(self) -> bool:
        return self.format == "parquet" if self.format is not None else self._suffix == _PARQUET

    @property
    def _says_format_of_member(self) -> bool:
        return len(self._name.suffixes) > 1

    def _format(self, name: str) -> str:
        bare = self._name.stem if name == self._name.name and self._suffix in _COMPRESSED else name
        suffix = Path(bare).suffix.lower()
        if suffix in _CSV:
            return ".csv"
        if suffix in _JSON_LINES:
            return suffix
        raise ConfigurationError(f"the name of {self.path} does not say its format; the known suffixes are {_KNOWN}")

    @contextmanager
    def _open(self) -> Iterator[tuple[str, IO[bytes]]]:
        """Open the file; give the name that determines the format, and the decompressed bytes."""
        name = self._name.name
        try:
            with self.open_file() as file:
                if self._suffix == ".gz":
                    with gzip.open(file, "rb") as stream:
                        yield name, stream  # type: ignore[misc]
                elif self._suffix == ".zip":
                    with zipfile.ZipFile(file) as archive:
                        member = self._only_member(archive)
                        with archive.open(member) as stream:
                            yield (self._name.stem if self._says_format_of_member else member.filename), stream
                else:
                    yield name, file
        except (gzip.BadGzipFile, zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise self._damaged(error) from error
        except NotImplementedError as error:
            raise MalformedMessageFileError(self.path, None, f"the archive cannot be read: {error}") from error

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

    def _parquet_rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        try:
            with self.open_file() as stream:
                yield from parquet.rows(stream)
        except parquet.DamagedParquetError as error:
            raise self._damaged(error) from error

    def _lines(self, stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that are not blank, with their numbers."""
        number = 0
        while line := stream.readline(_MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > _MAX_LINE_BYTES:
                raise self._malformed(number, f"the line is longer than {_MAX_LINE_BYTES} bytes")
            if number == 1:
                line = line.removeprefix(_BYTE_ORDER_MARK)
            if line and not line.isspace():
                yield number, line

    def _text_lines(self, stream: IO[bytes]) -> Iterator[tuple[int, str]]:
        for number, line in self._lines(stream):
            try:
                yield number, line.removesuffix(b"\n").removesuffix(b"\r").decode()
            except UnicodeDecodeError:
                raise self._malformed(number, "not UTF-8; convert the file, for instance with iconv") from None

    def _json_lines(self, stream: IO[bytes], form: str) -> Iterator[tuple[int, Any]]:
        for number, line in self._lines(stream):
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
            if _is_not_utf8(line):
                raise self._malformed(number, "not UTF-8; convert the file, for instance with iconv") from None
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
            raise self._malformed(
                rows.line_num + 1,
                "not UTF-8, on this line or one shortly after it; convert the file, for instance with iconv",
            ) from None

    def _check_header(self, header: list[str], line: int) -> None:
        twice = sorted({name for name in header if header.count(name) > 1})
        if twice:
            raise self._malformed(line, f"the header has {', '.join(map(repr, twice))} more than once")

    def _malformed(self, line: int, reason: str) -> MalformedMessageFileError:
        return MalformedMessageFileError(self.path, line, reason)

    def _damaged(self, error: Exception) -> MalformedMessageFileError:
        reason = f"the file is damaged or cut short; is it still being written? ({error})"
        return MalformedMessageFileError(self.path, None, reason, is_permanent=False)


def _is_not_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return True
    return False
