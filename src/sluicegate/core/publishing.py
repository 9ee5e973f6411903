"""From payloads to batches: encoding, deduplication keys and the life of what makes a repeat harmless."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sluicegate.core import json
from sluicegate.core.deduplication import KeyFunction
from sluicegate.core.entry import SEPARATOR, encode_deduplication_key, encode_headers
from sluicegate.core.keys import QueueKeys
from sluicegate.core.values import Batch

__all__ = ["MOST_PER_CALL", "Publishing", "chunks", "encode_payload"]

MOST_PER_CALL = 1000
_SHORTEST_RECEIPT_SECONDS = 600.0
_SAFE_SHARE = 0.9  # of a marker's or receipt's life: a repeat sent within it arrives within it


def encode_payload(payload: Any) -> bytes:
    """The stored bytes of a payload.

    Args:
        payload: dict or list (JSON), str (UTF-8) or bytes (as they are).

    Raises:
        TypeError: anything else, or something in it that JSON cannot carry; names the path.
        ValueError: NaN, infinities, integers beyond 64 bits, lone surrogates; names the path.
    """
    kind = type(payload)
    if kind is dict or kind is list:
        return json.dumps(payload)
    if isinstance(payload, (bytes, bytearray, memoryview)):
        return bytes(payload)
    if isinstance(payload, str):
        try:
            return payload.encode()
        except UnicodeEncodeError:
            raise ValueError("payload has a lone surrogate at $; UTF-8 cannot carry it") from None
    if isinstance(payload, (dict, list)):
        return json.dumps(payload)
    raise TypeError(f"payload is a {kind.__name__} at $; publish a dict, a list, a str or bytes")


def chunks(payloads: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """The payloads in lists of at most `size`, read as they are needed."""
    iterator = iter(payloads)
    while chunk := list(islice(iterator, size)):
        yield chunk


@dataclass(frozen=True, slots=True)
class Publishing:
    """How a queue publishes.

    Attributes:
        keys: of the queue.
        key_function: from a payload to its deduplication key, None without deduplication.
        window_seconds: life of a marker.
        retry_seconds: how long one publish is retried.
    """

    keys: QueueKeys
    key_function: KeyFunction | None
    window_seconds: float
    retry_seconds: float

    def batch(self, batch_id: bytes, payloads: list[Any], headers: Mapping[str, str] | None = None) -> Batch:
        """One call's worth of messages. The key function is called once per message."""
        middle = SEPARATOR + encode_headers(dict(headers) if headers else None) + SEPARATOR
        key_function = self.key_function
        if key_function is None:
            parts = [SEPARATOR + middle + encode_payload(payload) for payload in payloads]
            receipt = self._receipt_seconds()
            return Batch(batch_id, parts, receipt_seconds=receipt, oldest_seconds=receipt * _SAFE_SHARE)
        parts, markers = [], []
        dedup = self.keys.dedup
        for payload in payloads:
            key = encode_deduplication_key(key_function(payload))
            parts.append(SEPARATOR + key + middle + encode_payload(payload))
            markers.append(dedup(key))
        outlived = self.window_seconds >= 2 * self.retry_seconds
        receipt = 0.0 if outlived else self._receipt_seconds()
        return Batch(
            batch_id,
            parts,
            markers,
            window_seconds=self.window_seconds,
            receipt_seconds=receipt,
            oldest_seconds=(receipt or self.window_seconds) * _SAFE_SHARE,
        )

    def _receipt_seconds(self) -> float:
        return max(_SHORTEST_RECEIPT_SECONDS, 2 * self.retry_seconds)
