"""Reads the depths of the queues of many resources."""

from __future__ import annotations

import hashlib
from urllib.parse import parse_qs, urlsplit

from sluicegate._redis.connection import Address

__all__ = ["identify"]


def identify(url: str, queue_name: str) -> str:
    """Return a queue's name with a mark of its server, which is the same for every user and option of the URL.

    The mark is a hash: tags are shown in the UI, where a URL has no place.
    """
    parts = urlsplit(Address.parse(url).url)
    place = (parts.scheme, parts.netloc.rpartition("@")[2], parts.path, *parse_qs(parts.query).get("db", ()))
    return f"{queue_name}@{hashlib.sha256(repr(place).encode()).hexdigest()[:8]}"
