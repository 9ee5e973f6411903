"""The comparison finds what is wrong: each kind of fault, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from example_dags.demo.expected import Expected, compute_expected
from example_dags.demo.verify import Findings, verify
from tests.demo.helpers import Row, some_rows, write_csv, write_lease

COUNT = 60


@pytest.fixture
def rows() -> list[Row]:
    return some_rows(COUNT)


@pytest.fixture
def small_expected(tmp_path: Path, rows: list[Row]) -> Expected:
    return compute_expected(write_csv(tmp_path / "few.csv.zip", rows))


@pytest.fixture
def check(tmp_path: Path, small_expected: Expected) -> Callable[..., Findings]:
    """Compares leases, delays and counters with the expected result; those not given are as they must be."""

    def run(
        *leases: list[Row], delays: pd.DataFrame | None = None, ready: int = 0, crash: bool = False, **counters: int
    ) -> Findings:
        for number, lease in enumerate(leases):
            write_lease(tmp_path / "flights", lease, partition=number % 4, name=f"lease{number}")
        (tmp_path / "delays").mkdir()
        (small_expected.delays if delays is None else delays).to_parquet(tmp_path / "delays" / "part.parquet")
        good = {"published": COUNT, "duplicates": COUNT, "claimed": COUNT, "acked": COUNT}
        return verify(
            small_expected, good | counters, flights=tmp_path / "flights", delays=tmp_path / "delays", ready_left=ready,
            again=COUNT, crash=crash,
        )  # fmt: skip

    return run


def test_a_right_result_has_no_problems(check: Callable[..., Findings], rows: list[Row]) -> None:
    found = check(rows[40:], rows[:25], rows[25:40])

    assert found.problems == ()
    assert found.matches_pandas
    assert (found.drained, found.acked, found.lost, found.acked_twice) == (COUNT, COUNT, 0, 0)


def test_a_lost_flight_is_found(check: Callable[..., Findings], rows: list[Row]) -> None:
    found = check(rows[:-1])

    assert (found.lost, found.drained, found.matches_pandas) == (1, COUNT - 1, False)
    assert "1 flights of the CSV file are missing from the Parquet files" in found.problems


def test_a_flight_that_was_never_in_the_file_is_found(check: Callable[..., Findings], rows: list[Row]) -> None:
    found = check([*rows[:-1], rows[-1] | {"flight": "99999"}])

    assert (found.unknown, found.lost, found.drained) == (1, 1, COUNT)


def test_a_file_that_was_written_twice_is_found(
    check: Callable[..., Findings], rows: list[Row], tmp_path: Path
) -> None:
    folder = tmp_path / "flights" / "partition=3"
    folder.mkdir(parents=True)
    (write_lease(tmp_path / "other", rows, name="lease0")).rename(folder / "again.parquet")
    found = check(rows)

    assert (found.written_twice, found.drained, found.acked_twice) == (COUNT, 2 * COUNT, 0)
    assert f"{COUNT} rows were written twice" in found.problems


def test_a_cell_that_changed_on_the_way_is_found(check: Callable[..., Findings], rows: list[Row]) -> None:
    found = check([*rows[:-1], rows[-1] | {"dest": "XXX"}])

    assert not found.matches_pandas
    assert found.problems == ("the flights in the Parquet files differ from those in the CSV file",)


def test_a_sum_that_is_off_by_one_is_found(
    check: Callable[..., Findings], rows: list[Row], small_expected: Expected
) -> None:
    delays = small_expected.delays.copy()
    delays["delay_minutes"] += [1] + [0] * (len(delays) - 1)
    found = check(rows, delays=delays)

    assert not found.matches_pandas
    assert found.problems == ("the delays computed by Spark differ from those computed by pandas",)


def test_the_order_in_which_spark_answers_does_not_matter(
    check: Callable[..., Findings], rows: list[Row], small_expected: Expected
) -> None:
    delays = small_expected.delays.sample(frac=1, random_state=1).assign(average=1.5)

    assert check(rows, delays=delays).problems == ()


@pytest.mark.parametrize(
    ("counters", "acked_twice"),
    [
        ({"acked": COUNT + 7}, 7),
        # One message is still in flight, although as many acks as messages were counted.
        ({"acked": COUNT, "in_flight": 1}, 1),
        ({"acked": COUNT, "buried": 2}, 2),
        ({"acked": COUNT - 3, "in_flight": 3}, 0),
    ],
)
def test_acks_beyond_one_per_message_are_found(
    check: Callable[..., Findings], rows: list[Row], counters: dict[str, int], acked_twice: int
) -> None:
    found = check(rows, **counters)

    assert found.acked_twice == acked_twice
    assert found.problems != ()


def test_what_is_left_behind_is_found(check: Callable[..., Findings], rows: list[Row]) -> None:
    found = check(rows, ready=5, duplicates=COUNT - 1)

    assert f"refused {COUNT - 1} duplicates instead of {COUNT}" in found.problems
    assert "5 messages are still in the queue" in found.problems


def test_a_crash_that_hit_nobody_is_no_proof(check: Callable[..., Findings], rows: list[Row]) -> None:
    assert check(rows, crash=True).problems == ("no lease was taken over, so the kill hit nobody at work",)


def test_a_crash_with_a_takeover_is_fine(check: Callable[..., Findings], rows: list[Row]) -> None:
    assert check(rows, crash=True, taken_over=1).problems == ()
