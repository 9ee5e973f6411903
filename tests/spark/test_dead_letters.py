"""Dead letters as a table: what a DataFrame selects goes back, once, and nothing else does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate.errors import ConfigurationError
from sluicegate.spark import SelectedRedriveReport, dead_letters, redrive_selected
from tests.support.flavours import MakeQueue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.servers import RedisServer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


def bury(queue: RedisMessageQueue, count: int, **more: Any) -> None:
    """Bury messages numbered from 0, every third of them for another reason."""
    queue.publish_many({"n": n, **more} for n in range(count))
    with queue.claim(count) as lease:
        for reason, rest in (("hopeless", (0,)), ("odd", (1, 2))):
            lease.bury([one for at, one in enumerate(lease) if at % 3 in rest], error=ValueError(reason), reason=reason)


class Ids:
    """Stands in for a DataFrame that has been collected."""

    def __init__(self, *ids: str | None, column: str = "id") -> None:
        import pyarrow as pa
        from pyspark.sql.types import StructType

        self._table = pa.table({column: pa.array(ids, pa.string())})
        self.columns = [column]
        self.schema = StructType().add(column, "string")

    def select(self, column: str) -> Ids:
        assert column == f"`{self.columns[0]}`"
        return self

    def toArrow(self) -> Any:
        return self._table


def test_selected_letters_go_back_and_the_others_stay(spark: SparkSession, queue: RedisMessageQueue) -> None:
    bury(queue, 30)
    letters = dead_letters(spark, queue)
    assert letters.groupBy("reason").count().collect() != []
    assert {(row.reason, row["count"]) for row in letters.groupBy("reason").count().collect()} == {
        ("hopeless", 10),
        ("odd", 20),
    }
    wanted = letters.filter("reason = 'hopeless' and error_type = 'ValueError'").filter(
        "get_json_object(cast(payload as string), '$.n') < 15"
    )

    report = redrive_selected(queue, wanted)

    assert report == SelectedRedriveReport(redriven=5, scanned=5, selected=5)
    assert sorted(message.json()["n"] for message in queue.peek(10)) == [0, 3, 6, 9, 12]
    assert letters.count() == 25
    assert redrive_selected(queue, wanted) == SelectedRedriveReport(), "the selection is made anew, of what is dead now"
    assert dead_letters(spark, queue, limit=7, partitions=2).count() == 7


def test_a_repeat_with_the_same_ids_moves_nothing_twice(queue: RedisMessageQueue) -> None:
    bury(queue, 6)
    ids = [letter.id for letter in queue.peek(6, state="dead")]
    selected: Any = Ids(*ids[:4], ids[0], None, "stranger")

    assert redrive_selected(queue, selected) == SelectedRedriveReport(redriven=4, scanned=4, selected=5, missing=1)
    assert redrive_selected(queue, selected) == SelectedRedriveReport(selected=5, missing=5)
    assert (queue.depth().dead, queue.depth().pending, queue.stats().redriven) == (2, 4, 4)


def test_letters_that_cannot_go_are_counted_by_the_reason(
    make_queue: MakeQueue, server: RedisServer, client: redis.Redis
) -> None:
    queue = make_queue(url=server.url, get_deduplication_key="n", deduplication_policy="until_acked")
    bury(queue, 3)
    queue.publish({"n": 0})  # its key is held again
    client.rpush(queue.key.pending, b"stray")
    queue.claim(1).release()
    ids = [letter.id or "" for letter in queue.peek(9, state="dead")]
    assert len(ids) == 4

    report = redrive_selected(queue, Ids(*ids, column="message_id"))  # type: ignore[arg-type]

    assert report == SelectedRedriveReport(redriven=2, blocked=2, scanned=3, selected=4)


def test_what_finds_no_room_stays_and_is_counted(make_queue: MakeQueue, server: RedisServer) -> None:
    queue = make_queue(url=server.url)
    bury(queue, 10)
    ids: Any = Ids("stranger", *[letter.id for letter in queue.peek(10, state="dead")], "other")
    narrow = make_queue(url=server.url, max_pending_length=4)

    report = redrive_selected(narrow, ids)

    assert (report.redriven, report.missing, report.left, report.blocked) == (4, 1, 7, 0)
    assert report.selected == 12
    assert redrive_selected(queue, ids, limit=3).redriven == 3
    assert redrive_selected(queue, ids).redriven == 3
    assert queue.depth().dead == 0


def test_letters_go_in_the_order_of_the_selection(queue: RedisMessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluicegate.spark.browsing.dead_letters._PAGE", 2)
    bury(queue, 7)
    ids: Any = Ids(*[letter.id for letter in queue.peek(7, state="dead")])
    numbers = [letter.message.json()["n"] for letter in queue.peek(7, state="dead") if letter.message]

    assert redrive_selected(queue, ids).redriven == 7

    found = [message.json()["n"] for message in queue.peek(7)]
    assert [sorted(found[at : at + 2]) for at in (0, 2, 4, 6)] == [sorted(numbers[at : at + 2]) for at in (0, 2, 4, 6)]


def test_a_table_without_ids_is_refused(queue: RedisMessageQueue) -> None:
    with pytest.raises(ConfigurationError, match="redrive_selected needs a DataFrame with the column id or message_id"):
        redrive_selected(queue, Ids("x", column="n"))  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="limit must be"):
        redrive_selected(queue, Ids("x"), limit=0)  # type: ignore[arg-type]
