"""Names for the rows of a write that have no deduplication keys: the same at every attempt, whatever their order."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Sequence

from sluicegate.core.keys import QueueKeys

__all__ = ["RowNames", "digest_of"]

_LENGTH = 18  # bytes: no two rows of 10^15 are named alike
_SHORT = 8


def digest_of(*texts: str) -> bytes:
    """Several texts as a short part of a key; different texts never make the same."""
    joined = b"".join(b"%d:%s" % (len(data), data) for data in (text.encode(errors="surrogatepass") for text in texts))
    return urlsafe_b64encode(hashlib.sha256(joined).digest()[:_LENGTH])


class RowNames:
    """Markers for the rows of one partition of one write: of its id, the partition, the row's bytes, and how often the
    partition had them before.

    So identical rows stay several, and a repeat of the partition finds every one of its rows, in whatever order they
    come. About 80 bytes of memory per row.

    Args:
        keys: of the queue.
        write_id: of the write.
        partition: of the task.
    """

    def __init__(self, keys: QueueKeys, write_id: str, partition: int) -> None:
        self._keys = keys
        self._seed = digest_of(write_id, str(partition))
        self._seen: set[int] = set()
        self._again: Counter[int] = Counter()

    def markers(self, parts: Sequence[bytes]) -> list[bytes]:
        """The marker of each row; the row is what is stored of it, its headers included."""
        markers = []
        seed, seen, written, sha256 = self._seed, self._seen, self._keys.written, hashlib.sha256
        for part in parts:
            digest = sha256(seed + part).digest()
            short = int.from_bytes(digest[:_SHORT], "big")
            if short in seen:
                self._again[short] += 1
                digest = sha256(digest + b"%d" % self._again[short]).digest()
            else:
                seen.add(short)
            markers.append(written(urlsafe_b64encode(digest[:_LENGTH])))
        return markers
