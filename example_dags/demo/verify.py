"""Compare the result with what pandas computes: counts from Redis and the Parquet files against the CSV file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from example_dags.demo.expected import GROUP, TOTALS, Expected, in_order, keys_of

__all__ = ["Findings", "read_parquet", "verify"]


@dataclass(frozen=True, slots=True)
class Findings:
    """Holds the counts that were found, and the problems.

    Attributes:
        published, duplicates_refused, acked, taken_over, in_flight_left, ready_left, dead: from Redis, at the end.
        drained: rows in the Parquet files.
        lost: keys of the CSV file that are missing from the Parquet files.
        unknown: keys in the Parquet files that are not in the CSV file.
        written_twice: rows whose message is in the Parquet files already.
        acked_twice: acks beyond one per message.
        matches_pandas: whether every cell of every flight, and every sum and count of delays, is equal.
        problems: what is not as expected, a sentence each; empty when everything is.
    """

    published: int
    duplicates_refused: int
    drained: int
    acked: int
    lost: int
    unknown: int
    written_twice: int
    acked_twice: int
    taken_over: int
    in_flight_left: int
    ready_left: int
    dead: int
    matches_pandas: bool
    delays: pd.DataFrame
    problems: tuple[str, ...]


def verify(
    expected: Expected,
    counters: dict[str, int],
    *,
    flights: Path,
    delays: Path,
    ready_left: int,
    again: int,
    crash: bool,
) -> Findings:
    """Compare the result of a run with the expected result.

    Args:
        expected: the expected result.
        counters: Redis's own totals at the end.
        flights: folder of the leases' files.
        delays: folder of the averages.
        ready_left: messages that a claim would still get.
        again: rows that were published a second time.
        crash: whether a worker was killed, so that a lease must have been taken over.
    """
    drained = read_parquet(flights)
    computed = pq.read_table(delays).to_pandas()
    keys = keys_of(drained)
    messages = drained["message_id"].nunique()
    acked = counters.get("acked", 0)
    equal_flights = _same_flights(expected.flights, drained, keys)
    equal_delays = _same_delays(expected.delays, computed)
    findings = Findings(
        published=counters.get("published", 0),
        duplicates_refused=counters.get("duplicates", 0),
        drained=len(drained),
        acked=acked,
        lost=len(expected.keys.difference(keys)),
        unknown=len(set(keys) - expected.keys),
        written_twice=len(drained) - messages,
        acked_twice=_acked_twice(counters, messages, ready_left),
        taken_over=counters.get("taken_over", 0),
        in_flight_left=counters.get("in_flight", 0),
        ready_left=ready_left,
        dead=counters.get("buried", 0),
        matches_pandas=equal_flights and equal_delays,
        delays=computed,
        problems=(),
    )
    problems = _problems(findings, expected, again=again, crash=crash, flights=equal_flights, delays=equal_delays)
    return replace(findings, problems=tuple(problems))


def read_parquet(folder: Path) -> pd.DataFrame:
    """Read the files of all leases; whole numbers are Int64, as in the expected result."""
    types = {pa.int64(): pd.Int64Dtype(), pa.string(): pd.StringDtype()}
    table = pq.read_table(folder, partitioning=None)
    frame: pd.DataFrame = table.to_pandas(types_mapper=types.get)
    return frame


def _acked_twice(counters: dict[str, int], messages: int, ready_left: int) -> int:
    """Count the acks beyond one per message, as the greater of two counts.

    Redis counts every ack that takes effect. A worker writes a message to a file before it acks it, so the number of
    messages in the files limits the first acks. A published message that is neither waiting, nor in flight, nor dead
    has been acked once. Every ack beyond these is a second one.
    """
    left = ready_left + counters.get("in_flight", 0) + counters.get("buried", 0)
    once = min(messages, counters.get("published", 0) - left)
    return max(0, counters.get("acked", 0) - once)


def _same_flights(expected: pd.DataFrame, found: pd.DataFrame, keys: list[str]) -> bool:
    """Compare every cell of every flight, in any order."""
    if len(expected) != len(found) or not set(expected.columns) <= set(found.columns):
        return False
    right = in_order(found[list(expected.columns)], keys)
    return expected.equals(right.astype(expected.dtypes.to_dict()))


def _same_delays(expected: pd.DataFrame, found: pd.DataFrame) -> bool:
    if not {*GROUP, *TOTALS} <= set(found.columns):
        return False
    right = found[[*GROUP, *TOTALS]].sort_values(GROUP, ignore_index=True)
    return expected.equals(right.astype(expected.dtypes.to_dict()))


def _problems(
    found: Findings, expected: Expected, *, again: int, crash: bool, flights: bool, delays: bool
) -> list[str]:
    count = expected.count
    checks = {
        f"published {found.published:,} messages instead of {count:,}": found.published == count,
        f"refused {found.duplicates_refused:,} duplicates instead of {again:,}": found.duplicates_refused == again,
        f"{found.drained:,} rows are in the Parquet files instead of {count:,}": found.drained == count,
        f"acked {found.acked:,} messages instead of {count:,}": found.acked == count,
        f"{found.lost:,} flights of the CSV file are missing from the Parquet files": found.lost == 0,
        f"{found.unknown:,} keys in the Parquet files are not in the CSV file": found.unknown == 0,
        f"{found.written_twice:,} rows were written twice": found.written_twice == 0,
        f"{found.acked_twice:,} messages were acked twice": found.acked_twice == 0,
        f"{found.in_flight_left:,} messages are still in flight": found.in_flight_left == 0,
        f"{found.ready_left:,} messages are still in the queue": found.ready_left == 0,
        f"{found.dead:,} messages are dead letters": found.dead == 0,
        "the flights in the Parquet files differ from those in the CSV file": flights,
        "the delays computed by Spark differ from those computed by pandas": delays,
        "no lease was taken over, so the kill hit nobody at work": not crash or found.taken_over > 0,
    }
    return [problem for problem, fine in checks.items() if not fine]
