"""Message files: formats, compression, and what is said about those that cannot be read."""

from __future__ import annotations

import gzip
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sluicegate.sources import MalformedMessageFileError, MessageFile
from sluicegate.bulk import message_file
from sluicegate.errors import ConfigurationError

pytestmark = pytest.mark.airflow

LINES = b'{"id": 1}\n\n[2, "\xc3\xbc"]\n   \n{"id": 3}'
TABLE = b'id,note\n1,plain\n2,\n\n3,"two\nlines, ""quoted"""\n'
ROWS = [
    (2, {"id": "1", "note": "plain"}),
    (3, {"id": "2", "note": None}),
    (6, {"id": "3", "note": 'two\nlines, "quoted"'}),
]


def read(path: Path, **options: Any) -> list[tuple[int, Any]]:
    file = MessageFile(path, **options)
    file.check()
    return list(file)


def written(path: Path, content: bytes, member: str = "data") -> Path:
    """Write content, compressed as the name of the file says."""
    if path.suffix.lower() == ".gz":
        content = gzip.compress(content)
    if path.suffix.lower() == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("folder/", "")
            archive.writestr(member, content)
            archive.writestr("__MACOSX/._data", "resource fork")
    else:
        path.write_bytes(content)
    return path


@pytest.mark.parametrize("compression", ["", ".gz", ".zip", ".GZ", ".Zip"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.json", "a.2013-01.JSONL"])
def test_reads_json_lines(tmp_path: Path, name: str, compression: str) -> None:
    assert read(written(tmp_path / f"{name}{compression}", LINES)) == [(1, {"id": 1}), (3, [2, "ü"]), (5, {"id": 3})]


@pytest.mark.parametrize("compression", ["", ".gz", ".zip"])
def test_reads_csv_with_cells_as_text_and_empty_ones_as_null(tmp_path: Path, compression: str) -> None:
    assert read(written(tmp_path / f"a.csv{compression}", TABLE)) == ROWS


def test_empty_cells_may_stay_text(tmp_path: Path) -> None:
    assert read(written(tmp_path / "a.csv", b"id,note\n2,\n"), empty_as_null=False) == [(2, {"id": "2", "note": ""})]


def test_an_archive_without_a_telling_name_is_read_by_that_of_its_member(tmp_path: Path) -> None:
    assert read(written(tmp_path / "export.zip", TABLE, "folder/orders.csv")) == ROWS


@pytest.mark.parametrize(("name", "content"), [("a.jsonl", b'{"id": 1}'), ("a.csv", b"id\n1\n")])
def test_a_byte_order_mark_is_no_part_of_the_data(tmp_path: Path, name: str, content: bytes) -> None:
    ((_, message),) = read(written(tmp_path / name, b"\xef\xbb\xbf" + content))

    assert list(message) == ["id"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.jsonl.gz", "a.csv.gz", "a.csv.zip"])
def test_an_empty_file_holds_no_messages(tmp_path: Path, name: str) -> None:
    assert read(written(tmp_path / name, b"")) == []


def test_a_header_alone_holds_no_messages(tmp_path: Path) -> None:
    assert read(written(tmp_path / "a.csv", b"id,note\n")) == []


@pytest.mark.parametrize(
    ("name", "content", "line", "reason"),
    [
        ("a.jsonl", b'{"id": 1}\n{"id": CANARY}\n', 2, "not JSON"),
        ("a.jsonl", b'{"id": 1}\n{"id": NaN}\n', 2, "not JSON"),
        ("a.jsonl", b'{"id": 1}\n{"id": "\xffCANARY"}\n', 2, "not UTF-8; convert the file, for instance with iconv"),
        ("a.jsonl", b'{"id": 1}\n"CANARY"\n', 2, "a message is a JSON object or array, not str"),
        ("a.jsonl", b'{"id": 1}\nnull\n', 2, "a message is a JSON object or array, not NoneType"),
        ("a.json", b'[{"id": "CANARY"}, {"id": 2}]', 1, "the file is one JSON array"),
        ("a.json.gz", b'[{"id": "CANARY"}, {"id": 2}]', 1, "the file is one JSON array"),
        ("a.json", b'{\n  "id": "CANARY"\n}\n', 1, "one whole object per line, not one document over many lines"),
        ("a.csv", b"id,note\n1,a\n2,CANARY,b\n", 3, "the row has 3 cells, the header 2"),
        ("a.csv", b"id,note\n1,a\nCANARY\n", 3, "the row has 1 cells, the header 2"),
        ("a.csv", b'id,note\n1,a\n2,"CANARY\n', 3, "not CSV: unexpected end of data"),
        ("a.csv", b'id,note\n1,a\n2,"CANARY"x\n', 3, "not CSV"),
        ("a.csv", b"id,note\n1," + b"x" * 200_000, 2, "not CSV: field larger than field limit"),
        ("a.csv", b"id,note,id\n1,a,2\n", 1, "the header has 'id' more than once"),
        ("a.csv", b"id,note\n1,\xff\n", 1, "not UTF-8"),
    ],
)
def test_a_malformed_line_is_named_and_not_quoted(
    tmp_path: Path, name: str, content: bytes, line: int, reason: str
) -> None:
    path = written(tmp_path / name, content)
    with pytest.raises(MalformedMessageFileError) as malformed:
        read(path)

    assert str(malformed.value).startswith(f"{path}, line {line}: ")
    assert (malformed.value.path, malformed.value.line, malformed.value.is_permanent) == (path, line, True)
    assert reason in str(malformed.value)
    assert "CANARY" not in f"{malformed.value!r} {malformed.value.__cause__!r}"


def test_the_lines_before_a_malformed_one_are_read(tmp_path: Path) -> None:
    lines = iter(MessageFile(written(tmp_path / "a.jsonl", b'{"id": 1}\n{"id": 2}\n{\n{"id": 4}\n')))

    assert [next(lines), next(lines)] == [(1, {"id": 1}), (2, {"id": 2})]
    with pytest.raises(MalformedMessageFileError, match="line 3"):
        next(lines)


def test_a_line_without_end_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_file, "_MAX_LINE_BYTES", 1000)

    assert len(read(written(tmp_path / "a.jsonl", b"[" + b" " * 998 + b"]"))) == 1
    with pytest.raises(MalformedMessageFileError, match="line 1: the line is longer than 1000 bytes"):
        read(written(tmp_path / "b.jsonl", b"[" + b" " * 5000 + b"]"))


@pytest.mark.parametrize("kept", [0.1, 0.9, 0.999])
@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.csv.gz", "a.csv.zip", "a.jsonl.zip"])
def test_a_file_that_is_cut_short_may_still_be_written(tmp_path: Path, name: str, kept: float) -> None:
    path = written(tmp_path / name, b"".join(b"[%d]\n" % (number**5) for number in range(10_000)))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * kept)])

    with pytest.raises(MalformedMessageFileError, match="damaged or cut short; is it still being written") as cut:
        read(path)
    assert not cut.value.is_permanent
    path.write_bytes(whole)
    assert len(read(path)) == (10_000 if "jsonl" in name else 9_999)


@pytest.mark.parametrize("name", ["a.csv.gz", "a.csv.zip"])
def test_a_file_that_is_not_what_its_name_says_is_damaged(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"id\n1\n")

    with pytest.raises(MalformedMessageFileError, match="damaged or cut short"):
        read(path)


def test_an_archive_of_several_files_is_refused_and_lists_them(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(7):
            archive.writestr(f"{number}.csv", "id\n1\n")

    with pytest.raises(
        MalformedMessageFileError, match=r"must hold one file, and this one holds 7 \(0.csv, .*4.csv, …\)"
    ) as several:
        read(path)
    assert several.value.is_permanent


def test_an_archive_without_files_is_refused(tmp_path: Path) -> None:
    zipfile.ZipFile(tmp_path / "a.zip", "w").close()

    with pytest.raises(MalformedMessageFileError, match=r"this one holds 0 \(none\)"):
        read(tmp_path / "a.zip")


def test_an_encrypted_archive_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.zip", TABLE, "orders.csv")
    content = bytearray(path.read_bytes())
    # The flag of the member, in its entry of the directory: zipfile writes no encrypted archives.
    entry = content.index(b"PK\x01\x02", content.index(b"PK\x01\x02") + 4)
    content[entry + 8] |= 1
    path.write_bytes(content)

    with pytest.raises(MalformedMessageFileError, match="is encrypted") as encrypted:
        read(path)
    assert encrypted.value.is_permanent


def test_an_archive_of_an_unknown_compression_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.zip", TABLE, "orders.csv")
    content = bytearray(path.read_bytes())
    for signature, method in ((b"PK\x01\x02", 10), (b"PK\x03\x04", 8)):  # of every member, in both of its headers
        at = content.find(signature)
        while at >= 0:
            content[at + method] = 9  # Deflate64
            at = content.find(signature, at + 4)
    path.write_bytes(content)

    with pytest.raises(MalformedMessageFileError, match=r"the archive cannot be read: .*compression") as unknown:
        read(path)
    assert unknown.value.is_permanent


def test_a_missing_file_says_on_which_machine(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"a\.csv does not exist on this machine \(.+\)"):
        MessageFile(tmp_path / "a.csv").check()


@pytest.mark.parametrize("name", ["a", "a.txt", "a.gz", "a.parquet.gz", "a.txt.gz", "a.txt.zip", "a.tsv"])
def test_a_name_that_does_not_say_a_format_is_refused_early(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"does not say its format; the known suffixes are \.jsonl, \.ndjson, \.json, \.csv"
    ):
        MessageFile(written(tmp_path / name, TABLE)).check()


def test_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").mkdir()

    with pytest.raises(ConfigurationError, match="is not a file"):
        MessageFile(tmp_path / "a.csv").check()


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zip", "a.csv", "a.csv.gz"])
def test_reading_holds_one_line_at_a_time(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name, b"".join(b'["%0200d"]\n' % number for number in range(20_000)))

    tracemalloc.start()
    count = sum(1 for _ in MessageFile(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert count == (20_000 if "jsonl" in name else 19_999)
    assert peak < 1_000_000
