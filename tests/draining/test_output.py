"""Files of a lease: attempts that replace each other, at any point of which a worker may be killed."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from sluicegate import Lease, Message, RedisMessageQueue
from sluicegate.draining import output
from sluicegate.draining.context import DrainContext
from sluicegate.draining.output import OutputFiles
from sluicegate.errors import LeaseLostError
from tests.draining.helpers import Numbers, drain_here
from tests.support import state
from tests.support.waiting import wait_until

LEASE = "0123456789abcdef" * 2
SIZE = 8
Part = tuple[int, int]


class Killed(BaseException):
    """The worker is gone: nothing of it runs on."""


def key_of(part: Part) -> str:
    return LEASE if part == (1, SIZE) else f"{LEASE}-{part[0]}-{part[1]}"


def written(folder: Path) -> list[int]:
    """Return the rows that a reader of the folder finds."""
    return sorted(row for file in folder.glob("[!.]*.json") for row in json.loads(file.read_text()))


def drafts(folder: Path) -> list[Path]:
    return list(folder.glob(".*"))


def write(folder: Path, part: Part, suffix: str = ".json") -> OutputFiles:
    files = OutputFiles(key_of(part))
    files.draft(folder, suffix).write_text(json.dumps(list(range(part[0], part[1] + 1))))
    return files


def halvings(first: int, last: int) -> Iterator[Part]:
    """Yield all parts that halving can make of a range."""
    yield first, last
    if first < last:
        middle = (first + last) // 2
        yield from halvings(first, middle)
        yield from halvings(middle + 1, last)


PARTS = st.sampled_from(list(halvings(1, SIZE)))


@st.composite
def partitions(draw: st.DrawFn) -> list[Part]:
    """Return the parts in which an attempt got through the whole lease."""
    waiting, done = [(1, SIZE)], []
    while waiting:
        first, last = waiting.pop(0)
        if first == last or draw(st.booleans()):
            done.append((first, last))
        else:
            middle = (first + last) // 2
            waiting[:0] = [(first, middle), (middle + 1, last)]
    return done


@given(
    st.lists(st.tuples(PARTS, st.integers(0, 8)), max_size=8),
    partitions(),
    st.lists(st.tuples(PARTS, st.integers(0, 8)), max_size=3),
)
def test_what_is_in_place_stays_and_a_whole_attempt_leaves_each_row_once(
    before: list[tuple[Part, int]], last: list[Part], after: list[tuple[Part, int]]
) -> None:
    """`before` are attempts that were killed after so many changes of the folder; `after` are zombies."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        left = [0]

        def step(operation: str) -> None:
            original = getattr(Path, operation)

            def counted(path: Path, *arguments: object, **options: object) -> object:
                if left[0] == 0:
                    raise Killed
                left[0] -= 1
                result = original(path, *arguments, **options)
                assert seen <= set(written(folder)), f"{operation} of {path.name} took rows away"
                seen.update(written(folder))
                return result

            patch.setattr(Path, operation, counted)

        seen: set[int] = set()
        step("replace")
        step("unlink")

        def attempt(part: Part, steps: int) -> None:
            left[0] = steps
            files = write(folder, part)
            try:
                files.place()
            except Killed:
                return

        for part, steps in before:
            attempt(part, steps)
        for part in last:
            attempt(part, -1)
        assert written(folder) == list(range(1, SIZE + 1))
        for part, steps in after:
            attempt(part, steps)
            assert set(written(folder)) == set(range(1, SIZE + 1))
        for part, _ in after:
            attempt(part, -1)
        assert written(folder) == list(range(1, SIZE + 1))


def test_until_the_call_ends_well_nothing_is_seen(tmp_path: Path) -> None:
    files = write(tmp_path, (1, SIZE))
    assert written(tmp_path) == []

    files.drop()

    assert list(tmp_path.iterdir()) == []


def test_one_path_for_one_name_and_several_files_in_several_folders(tmp_path: Path) -> None:
    files = OutputFiles(LEASE)
    orders, log = files.draft(tmp_path / "new" / "orders", ".parquet"), files.draft(tmp_path, ".csv.gz")
    assert files.draft(str(tmp_path / "new" / "orders"), ".parquet") == orders
    assert orders.name.endswith(".parquet")
    assert log.name.endswith(".csv.gz")
    orders.write_text("o")
    log.write_text("l")

    files.place()
    files.drop()

    assert (tmp_path / "new" / "orders" / f"{LEASE}.parquet").read_text() == "o"
    assert (tmp_path / f"{LEASE}.csv.gz").read_text() == "l"
    assert drafts(tmp_path) == drafts(tmp_path / "new" / "orders") == []


def test_files_of_other_leases_and_with_other_ends_stay(tmp_path: Path) -> None:
    others = [f"{'f' * 32}.json", f"{'f' * 32}-1-4.json", f"{LEASE}-1-4.csv", f"{LEASE}-1-4.json.gz", f"{LEASE}-1.json"]
    for name in others:
        (tmp_path / name).write_text("[]")
    write(tmp_path, (1, 4)).place()

    write(tmp_path, (1, SIZE)).place()

    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*others, f"{LEASE}.json"])


def test_a_file_that_was_asked_for_and_not_written_is_told_and_no_other_takes_its_place(tmp_path: Path) -> None:
    files = write(tmp_path, (1, SIZE))
    files.draft(tmp_path, ".npy")

    with pytest.raises(FileNotFoundError, match=rf"output file '{LEASE}\.npy' and wrote nothing to the path"):
        files.place()
    files.drop()

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", ["/orders.json", "a/b", "\0"])
def test_a_suffix_is_the_end_of_a_name(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(ValueError, match="suffix must be the end of a file name"):
        OutputFiles(LEASE).draft(tmp_path, suffix)


def test_a_file_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    to_disk, replace = output._to_disk, Path.replace
    monkeypatch.setattr(output, "_to_disk", lambda path: (done.append(path.suffix or "folder"), to_disk(path)))
    monkeypatch.setattr(Path, "replace", lambda path, target: (done.append("replace"), replace(path, target)))

    write(tmp_path, (1, SIZE)).place()

    assert done == [".json", "replace", "folder"]


def test_a_context_made_by_hand_names_the_place_itself(tmp_path: Path) -> None:
    ctx = DrainContext(lease_key="k", lease_id="run/0/0", opening="1-1", partition=0, chunk=0, run_id="run")

    ctx.output_file(tmp_path / "new", ".json").write_text("[1]")

    assert written(tmp_path / "new") == [1]


def files_of(folder: Path) -> list[str]:
    """Return the names in a folder, hidden ones too, without what differs from run to run."""
    return sorted(re.sub(r"[0-9a-f]{32}", "KEY", path.name) for path in folder.iterdir())


def test_what_a_handler_wrote_has_its_name_once_it_returned_and_before_the_ack(
    queue: RedisMessageQueue, numbers: Numbers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers(3)
    seen: list[list[str]] = []
    settle = Lease.settle
    monkeypatch.setattr(
        Lease, "settle", lambda lease, *verdicts: (seen.append(files_of(tmp_path)), settle(lease, *verdicts))[1]
    )

    def process(batch: list[Message], ctx: DrainContext) -> None:
        ctx.output_file(tmp_path, ".txt").write_text("done")
        seen.append(files_of(tmp_path))

    assert drain_here(queue, process).acked == 3
    assert seen == [[".KEY.KEY.txt"], ["KEY.txt"]]


def raises(ctx: DrainContext) -> object:
    raise OSError("the disk is full")


def says_what_cannot_be(ctx: DrainContext) -> object:
    return ["ack"] * 17


@pytest.mark.parametrize("end", [raises, says_what_cannot_be])
def test_a_handler_that_fails_leaves_no_file(
    queue: RedisMessageQueue, numbers: Numbers, tmp_path: Path, end: Callable[[DrainContext], object]
) -> None:
    numbers(3)

    def process(batch: list[Message], ctx: DrainContext) -> object:
        ctx.output_file(tmp_path, ".txt").write_text("begun")
        return end(ctx)

    assert drain_here(queue, process).acked == 0
    assert files_of(tmp_path) == []


def test_a_handler_whose_lease_was_lost_leaves_no_file(
    queue: RedisMessageQueue, numbers: Numbers, tmp_path: Path, client: redis.Redis
) -> None:
    numbers(3)

    def process(batch: list[Message], ctx: DrainContext) -> None:
        ctx.output_file(tmp_path, ".txt").write_text("begun")
        state.expire(client, queue.name)
        queue.claim(3, lease_id="another")
        wait_until(lambda: ctx.lost, "the heartbeat learns of the loss")

    with pytest.raises(LeaseLostError):
        drain_here(queue, process, lease_seconds=1)
    assert files_of(tmp_path) == []
