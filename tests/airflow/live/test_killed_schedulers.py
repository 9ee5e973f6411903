"""A scheduler is killed with the tasks that it runs, and started again."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.airflow.live.held import Held, check_settled
from tests.support import handlers

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(600)]


def test_a_run_whose_scheduler_is_killed_ends_with_each_message_acked_once(held: Held) -> None:
    held.queue.publish_many(handlers.messages(held.folder, 50))
    held.start("drains", "drain")

    held.deployment.kill("scheduler")
    (held.folder / "go").touch()
    held.deployment.start("scheduler")
    held.deployment.wait_for_run(held.dag_id, held.run_id)

    assert held.xcom("drain")["taken_over"] == 1
    assert Counter(handlers.numbers(held.folder)) == Counter([*range(50), *range(20, 30)])
    check_settled(held.queue, 50)
