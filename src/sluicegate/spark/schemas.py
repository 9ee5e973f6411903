"""Convert schemas for Spark: the session parses DDL text, and columns become a `StructType`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluicegate.core import json
from sluicegate.errors import ConfigurationError
from sluicegate.tables.columns import Columns, Schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["parsed", "struct_of"]


def parsed(schema: Schema | None) -> Schema | None:
    """Parse DDL text with the running session, because Spark has no parser outside of one.

    Raises:
        ConfigurationError: no session is running, or the text is not DDL.
    """
    if not isinstance(schema, str):
        return schema
    from pyspark.errors import PySparkException
    from pyspark.sql.types import DataType, StructType

    try:
        found = DataType.fromDDL(schema)
    except PySparkException as error:
        if "SESSION" in (error.getCondition() or ""):
            raise ConfigurationError(
                "DDL text can only be parsed by a running Spark session, and there is none here; pass a "
                "pyspark.sql.types.StructType or a pyarrow.Schema"
            ) from None
        raise ConfigurationError(f"the schema is not DDL such as 'id bigint, name string': {error}") from None
    if not isinstance(found, StructType):
        raise ConfigurationError(f"the schema must name its columns, as in 'id bigint, name string', not {schema!r}")
    return found


def struct_of(columns: Columns) -> StructType:
    """Return the columns of a table as Spark's schema."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(columns.schema))
