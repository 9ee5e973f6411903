"""Name rows by their content, so that a write that is repeated in other partitions publishes nothing again.

A task sees one partition, so it cannot know how often the other partitions have a row that equals one of its own. The
occurrences of equal rows are therefore numbered before the write, by a window over the whole DataFrame.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sluicegate.errors import ConfigurationError
from sluicegate.spark.writing.naming import digest_of, key_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["CONTENT_KEY", "content_keys", "keys_of_contents"]

CONTENT_KEY = "sluicegate_content_key"
"""The column that `content_keys` adds; it is never published."""

_FORMATS = {  # the session's time zone and formats that drop digits would make other texts of the same rows
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}


def content_keys(df: DataFrame, columns: Sequence[str] | None = None) -> DataFrame:
    """Add the column by which a write with `writeKey=content` recognizes rows, however they are partitioned.

    ::

        content_keys(df).write.format("sluicegate").mode("append").options(**options(queue))
            .option("writeKey", "content").option("writeId", run_id).save()

    The column holds a hash of the row and the number of the row among its equals. Equal rows get the numbers 1, 2, …
    across the whole DataFrame, so each of them is published, and a repeat in any partitioning finds each of them. This
    costs one shuffle, after which rows have another order.

    Args:
        df: a DataFrame, classic or Connect, that is not a stream.
        columns: the columns that make a row's identity; default all. Leave columns out that a repeat computes anew,
            such as the time of loading.

    Raises:
        ConfigurationError: a column is missing, or `df` is a stream.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    if df.isStreaming:
        raise ConfigurationError(
            "rows of a stream cannot be numbered before they are written; write with foreachBatch, and call "
            "content_keys for each batch"
        )
    names = list(df.columns if columns is None else columns)
    missing = [name for name in names if name not in df.columns]
    if missing or not names:
        raise ConfigurationError(
            f"content_keys needs columns of the DataFrame, which has {', '.join(df.columns) or 'none'}; "
            f"{', '.join(map(repr, missing)) or 'an empty list'} was given"
        )
    row = f.to_json(f.struct(*(f.col(_quoted(name)) for name in names)), _FORMATS)
    hashed = df.withColumn(CONTENT_KEY, f.sha2(row, 256))
    number = f.row_number().over(Window.partitionBy(CONTENT_KEY).orderBy(CONTENT_KEY))
    return hashed.withColumn(CONTENT_KEY, f.concat_ws(":", f.col(CONTENT_KEY), number))


def keys_of_contents(write_id: str, contents: pa.Array[Any]) -> list[bytes]:
    """Return the deduplication keys of rows of a write from the column that `content_keys` adds.

    Raises:
        ConfigurationError: the column is null somewhere.
    """
    if contents.null_count:
        raise ConfigurationError(
            f"column {CONTENT_KEY!r} is null in {contents.null_count} rows; call content_keys(df) last, just before "
            "the write"
        )
    seed = digest_of(write_id, "content")
    return [key_of(hashlib.sha256(seed + text.encode()).digest()) for text in contents.to_pylist()]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
