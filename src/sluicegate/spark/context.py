"""What a drain tells its handler about the batch in hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["DrainContext"]


def _held() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class DrainContext:
    """The second argument of `process(batch, ctx)`.

    Name output by `lease_key`. To make it exact whatever crashes or raises, first remove `{lease_key}*`, then write
    under a temporary name and rename as the last step: a retry of the same lease then replaces its own output and
    nothing else, also when one attempt worked on the batch whole and another in parts.

    Attributes:
        lease_key: a file-safe name of this batch: 32 hex digits for a whole chunk, followed by `-<first slot>-<last
            slot>` for a part of one that failed as a whole. The same when a retry takes the lease over, another
            whenever the lease is opened anew.
        lease_id: `<run id>/<partition>/<chunk>`.
        opening: which opening of that lease id this is.
        partition: number of the partition, from 0.
        chunk: number of the chunk in its partition, from 0.
        run_id: of the drain.
        attempt: Spark's attempt number of this task, from 0.
    """

    lease_key: str
    lease_id: str
    opening: str
    partition: int
    chunk: int
    run_id: str
    attempt: int = 0
    _is_lost: Callable[[], bool] = field(default=_held, repr=False, compare=False)

    @property
    def lost(self) -> bool:
        """Whether the lease is no longer held, as of now; then another does the work again."""
        return self._is_lost()
