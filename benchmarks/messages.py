"""What is sent: orders of exactly 200 bytes of compact JSON, with deduplication keys as long as real ones."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["BATCH", "KEY_BYTES", "KEY_FIELD", "PAYLOAD_BYTES", "QUEUE", "Order", "orders"]

QUEUE = "orders"
KEY_FIELD = "order_id"
PAYLOAD_BYTES = 200
KEY_BYTES = 24  # as in the flights: date, carrier, number, airport and hour
BATCH = 1000

Order = dict[str, Any]


def orders(
    count: int, first: int = 0, *, key_bytes: int = KEY_BYTES, payload_bytes: int = PAYLOAD_BYTES
) -> list[Order]:
    """Different orders: text, an int, a float, a bool, a null and a list, filled up to the wanted size."""
    return [_order(number, key_bytes, payload_bytes) for number in range(first, first + count)]


def _order(number: int, key_bytes: int, payload_bytes: int) -> Order:
    name = f"2013-{number % 12 + 1:02}-{number % 28 + 1:02}-EWR-"
    order: Order = {
        KEY_FIELD: f"{name[: key_bytes - 9]}{number:09}",
        "customer": "Ada Lovelace",
        "amount": number % 1000 + 0.25,
        "lines": [number % 7, number % 11, 3],
        "paid": True,
        "coupon": None,
        "note": "",
    }
    order["note"] = "x" * (payload_bytes - len(json.dumps(order, separators=(",", ":"))))
    return order
