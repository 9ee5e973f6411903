"""Encode JSON as Spark's variants. Spark has the encoder, so its part of this package registers it here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Encode", "to_variants", "use"]

Encode = Callable[[str], tuple[bytes, bytes]]
"""From a text of JSON to value and metadata; raises ValueError for what no variant can hold."""

_encoders: list[Encode] = []


def use(encode: Encode) -> None:
    """Register the encoder of this process."""
    _encoders[:] = [encode]


def to_variants(texts: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Encode texts of JSON; null stays null.

    Raises:
        ValueError: a value that no variant can hold.
    """
    import pyarrow as pa

    (encode,) = _encoders
    values: list[dict[str, bytes] | None] = []
    for text in texts.to_pylist():
        if text is None:
            values.append(None)
        else:
            value, metadata = encode(text)
            values.append({"value": value, "metadata": metadata})
    return pa.array(values, wanted)
