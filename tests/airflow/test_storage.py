"""Files in object stores: which URLs are read, through which filesystem, and how much of them at a time."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import ObjectStoragePath
from airflow.sdk.io import attach, store
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from airflow_provider_sluicegate.compat import AirflowFailException, AirflowNotFoundException
from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator
from airflow_provider_sluicegate.sources import MalformedMessageFileError, MessageFile
from airflow_provider_sluicegate.storage import StoredFile, find_file
from sluicegate import RedisMessageQueue
from sluicegate.errors import ConfigurationError

pytestmark = pytest.mark.airflow

BLOCK_BYTES = 64 * 1024


class Bucket(AbstractFileSystem):
    """An object store over a folder; as those of S3 and GCS, it hands out ranges of bytes and counts them."""

    protocol = "s3"
    cachable = False

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.ranges: list[tuple[int, int]] = []

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Describe an object or a prefix."""
        found = self.folder / self._strip_protocol(path)
        if not found.exists():
            raise FileNotFoundError(path)
        return {"name": path, "size": found.stat().st_size, "type": "directory" if found.is_dir() else "file"}

    def _open(self, path: str, mode: str = "rb", **_: Any) -> AbstractBufferedFile:
        return Ranges(self, path, mode, block_size=BLOCK_BYTES)


class Ranges(AbstractBufferedFile):
    def _fetch_range(self, start: int, end: int) -> bytes:
        self.fs.ranges.append((start, end))
        with (self.fs.folder / self.path).open("rb") as file:
            file.seek(start)
            return file.read(end - start)


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    """Attach a bucket `orders` to Airflow, at s3:// for the connection `lake`."""
    (tmp_path / "orders").mkdir()
    bucket = Bucket(tmp_path)
    attach("s3", "lake", fs=bucket)
    yield bucket
    store._STORE_CACHE.pop("s3-lake")


def content(name: str, path: Path, count: int = 3) -> None:
    """Write rows with an id as the name says."""
    lines = "".join(f'{{"id": {number}, "note": "{number:0200d}"}}\n' for number in range(count)).encode()
    if name.endswith(".gz"):
        lines = gzip.compress(lines, compresslevel=0)
    if name.endswith(".zip"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("orders.jsonl", lines)
    elif name.endswith(".parquet"):
        import pyarrow as pa
        from pyarrow import parquet

        table = pa.table({"id": range(count), "note": [f"{number:0200d}" for number in range(count)]})
        parquet.write_table(table, path, row_group_size=2000, compression="none", use_dictionary=False)
    else:
        path.write_bytes(lines)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zip", "a.zip", "a.parquet"])
def test_a_file_is_read_through_the_filesystem_that_airflow_has(
    queue: RedisMessageQueue, bucket: Bucket, name: str
) -> None:
    content(name, bucket.folder / "orders" / name)

    operator = RedisQueuePublishOperator(task_id="p", queue_name=queue.name, path="s3://lake@orders/{{ params.name }}")
    operator.render_template_fields({"params": {"name": name}})  # type: ignore[typeddict-item]
    operator.execute({})

    assert [message.json()["id"] for message in queue.peek()] == [0, 1, 2]
    assert bucket.ranges


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zip", "a.parquet"])
def test_a_file_is_streamed_in_blocks(bucket: Bucket, name: str) -> None:
    path = bucket.folder / "orders" / name
    content(name, path, 20_000)

    rows = iter(MessageFile(StoredFile("s3", "lake", f"orders/{name}")))
    for _ in range(1000):
        next(rows)

    assert path.stat().st_size > 4_000_000
    assert sum(end - start for start, end in bucket.ranges) < 2_000_000
    assert sum(1 for _ in rows) == 19_000


def test_a_path_of_airflows_own_class_is_rendered_and_read(queue: RedisMessageQueue, bucket: Bucket) -> None:
    content("a.jsonl", bucket.folder / "orders" / "a.jsonl")

    path = ObjectStoragePath("s3://lake@orders/{{ params.name }}.jsonl")
    operator = RedisQueuePublishOperator(task_id="p", queue_name=queue.name, path=path)
    operator.render_template_fields({"params": {"name": "a"}})  # type: ignore[typeddict-item]

    assert operator.execute({})["published"] == 3


@pytest.mark.parametrize("prefix", ["file://", "FILE://", "local://", ""])
def test_a_url_of_this_machine_is_a_path(tmp_path: Path, prefix: str) -> None:
    assert find_file(f"{prefix}{tmp_path}/a.jsonl") == tmp_path / "a.jsonl"
    assert find_file(ObjectStoragePath(f"file://{tmp_path}/a.jsonl")) == tmp_path / "a.jsonl"


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("s3://orders/day/a.csv", StoredFile("s3", None, "orders/day/a.csv")),
        ("gs://lake@orders/a@b.csv", StoredFile("gs", "lake", "orders/a@b.csv")),
        ("s3://orders/a@b.csv", StoredFile("s3", None, "orders/a@b.csv")),
        ("abfs://@orders/a#1?.csv", StoredFile("abfs", None, "orders/a#1?.csv")),
    ],
)
def test_a_url_names_scheme_connection_and_key(url: str, found: StoredFile) -> None:
    assert find_file(url) == found
    assert str(found) == url.replace("://@", "://")
    assert found.name == url.rpartition("/")[2]


def test_a_malformed_line_is_named_by_its_url(bucket: Bucket) -> None:
    (bucket.folder / "orders" / "a.jsonl").write_text('{"id": 1}\n{"id": CANARY}\n')

    with pytest.raises(MalformedMessageFileError, match=r"^s3://lake@orders/a\.jsonl, line 2: not JSON") as malformed:
        list(MessageFile(StoredFile("s3", "lake", "orders/a.jsonl")))
    assert "CANARY" not in str(malformed.value)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("s3://lake@orders", r"^s3://lake@orders is not a file; give the path of one file, or map the task"),
        ("s3://lake@orders/", r"^s3://lake@orders/ is not a file"),
        ("s3://lake@", r"^path is s3:// without a name; give s3://bucket/name"),
        ("s3://orders/a.csv", r"no filesystem for s3:// .*; pip install 'apache-airflow-providers-amazon\[s3fs\]'"),
        ("gs://orders/a.csv", r"no filesystem for gs:// .*; pip install 'apache-airflow-providers-google'"),
        ("abfs://orders/a.csv", r"pip install 'apache-airflow-providers-microsoft-azure'"),
        ("ftp://orders/a.csv", r"no filesystem for ftp:// where the task runs; install the provider of that storage"),
        ("s3://id:SECRET@orders/a.csv", r"s3:// URL with a password in it; put both into an Airflow connection"),
    ],
)
def test_a_url_that_cannot_work_fails_the_task_at_once(
    queue: RedisMessageQueue, bucket: Bucket, path: str, reason: str
) -> None:
    operator = RedisQueuePublishOperator(task_id="publish", queue_name=queue.name, path=path)

    with pytest.raises(AirflowFailException, match=reason) as refused:
        operator.execute({})
    assert "SECRET" not in str(refused.value)


def test_an_object_that_is_not_there_may_come_later(queue: RedisMessageQueue, bucket: Bucket) -> None:
    operator = RedisQueuePublishOperator(task_id="publish", queue_name=queue.name, path="s3://lake@orders/a.csv")

    with pytest.raises(FileNotFoundError, match=r"^s3://lake@orders/a\.csv does not exist$"):
        operator.execute({})


def test_a_filesystem_whose_library_or_connection_is_missing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.io import fs

    def without_library(conn_id: str | None) -> AbstractFileSystem:
        raise ImportError("pip install apache-airflow-providers-amazon[s3fs]")

    def with_connection(conn_id: str | None) -> AbstractFileSystem:
        raise AirflowNotFoundException(f"The conn_id `{conn_id}` isn't defined")

    filesystems = {"s3": without_library, "gs": with_connection}
    monkeypatch.setattr(fs, "_register_filesystems", lambda: filesystems)

    with pytest.raises(ConfigurationError, match=r"a\.csv cannot be read where the task runs: pip install"):
        StoredFile("s3", "missing", "orders/a.csv").filesystem()
    with pytest.raises(ConfigurationError, match="connection 'missing' is not defined; add it, or correct the URL"):
        StoredFile("gs", "missing", "orders/a.csv").filesystem()
    for alias in ("s3-missing", "gs-missing"):
        store._STORE_CACHE.pop(alias)
