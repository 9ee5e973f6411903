"""Wait for an answer of the poller that meets a condition."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from airflow_provider_sluicegate.triggers._outage import EveryMinute, OutageLog, failure_event
from airflow_provider_sluicegate.triggers._poller import watch

if TYPE_CHECKING:
    from airflow_provider_sluicegate.triggers._poller import Question

__all__ = ["first_answer"]


class Waiting(Protocol):
    """Declares what is used of a trigger."""

    redis_conn_id: str
    poll_interval_seconds: float

    @property
    def log(self) -> Any: ...


async def first_answer(
    trigger: Waiting, question: Question, is_met: Callable[[Any], bool]
) -> tuple[Any, dict[str, Any] | None]:
    """
    Return the first answer that meets a condition; the log has one answer a minute while it is not met.

    An outage of Redis only delays it.

    :param trigger: that waits.
    :param question: what to ask.
    :param is_met: the condition.
    :return: the answer, and None; or None, and the event that fails the task because it can never be read.
    """
    outage, is_time = OutageLog(trigger.log), EveryMinute()
    try:
        question.calls()
    except (ValueError, TypeError) as error:  # a name or id that nothing may have
        return None, failure_event(error) or {"status": "error", "error": str(error), "is_permanent": True}
    async with watch(trigger.redis_conn_id, [question], interval_seconds=trigger.poll_interval_seconds) as readings:
        async for reading in readings:
            answer = reading[question]
            if isinstance(answer, Exception):
                if (event := outage.ends_with(answer)) is None:
                    continue
                return None, event
            outage.is_over()
            met = is_met(answer)
            if met or is_time():
                trigger.log.info("%s", answer)
            if met:
                return answer, None
    raise AssertionError("readings never end")
