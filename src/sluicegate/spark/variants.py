"""Let payloads be read as Spark's variants, with the encoder of PySpark."""

from __future__ import annotations

from sluicegate.tables import variants

__all__ = ["encode"]


def encode(text: str) -> tuple[bytes, bytes]:
    """Return value and metadata of the variant for a text of JSON, as `parse_json` makes them."""
    from pyspark.sql.types import VariantVal

    made = VariantVal.parseJson(text)
    return bytes(made.value), bytes(made.metadata)


variants.use(encode)
