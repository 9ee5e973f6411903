"""Name the rows of a write that have no deduplication keys, equally at every attempt and in any order."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Sequence

__all__ = ["RowNames", "digest_of", "key_of"]

_LENGTH = 18  # bytes; among 10^15 rows no two get the same name
_SHORT = 8
_PREFIX = b"written:"  # an encoded key of a user holds no colon


def digest_of(*texts: str) -> bytes:
    """Turn several texts into a short part of a key; different texts make different parts."""
    joined = b"".join(b"%d:%s" % (len(data), data) for data in (text.encode(errors="surrogatepass") for text in texts))
    return urlsafe_b64encode(hashlib.sha256(joined).digest()[:_LENGTH])


def key_of(digest: bytes) -> bytes:
    """Return the deduplication key that a row without one of its own gets."""
    return _PREFIX + urlsafe_b64encode(digest[:_LENGTH])


class RowNames:
    """Makes deduplication keys for the rows of one partition of one write.

    A key is made of the write's id, the partition, the row's bytes, and how often the partition had them before.
    Identical rows are therefore published as several messages, and a repeat of the partition finds each of its rows, in
    any order. A row takes about 80 bytes of memory.

    Args:
        write_id: the id of the write.
        partition: the number of the partition.
    """

    def __init__(self, write_id: str, partition: int) -> None:
        self._seed = digest_of(write_id, str(partition))
        self._seen: set[int] = set()
        self._again: Counter[int] = Counter()

    def keys(self, parts: Sequence[bytes]) -> list[bytes]:
        """Return the key of each row; a row is given as it is stored, including its headers."""
        keys = []
        seed, seen, sha256 = self._seed, self._seen, hashlib.sha256
        for part in parts:
            digest = sha256(seed + part).digest()
            short = int.from_bytes(digest[:_SHORT], "big")
            if short in seen:
                self._again[short] += 1
                digest = sha256(digest + b"%d" % self._again[short]).digest()
            else:
                seen.add(short)
            keys.append(key_of(digest))
        return keys
