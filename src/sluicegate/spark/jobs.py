"""Run a job of Spark so that an orchestrator's task can cancel it."""

from __future__ import annotations

import contextvars
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkJob"]

T = TypeVar("T")

_AGAIN_SECONDS = 0.2  # between two cancellations: Spark cancels only what it has begun
_GRACE_SECONDS = 3.0  # an orchestrator kills the process soon: Airflow after 5 s


class SparkJob(Generic[T]):
    """Runs a function of a Spark session in a thread of its own.

    The signals and timeouts of an orchestrator interrupt the task's thread wherever it is. Inside a call to Spark that
    would leave the connection to the JVM in the middle of an answer, so the task's thread only waits. When it is
    interrupted, it cancels what the function has begun, and only that.
    """

    def __init__(self) -> None:
        self._tag = f"sluicegate-{uuid.uuid4().hex}"
        self._outcome: Future[T] = Future()
        self._session: SparkSession | None = None
        self._is_cancelled = threading.Event()

    def run(self, session: AbstractContextManager[SparkSession], work: Callable[[SparkSession], T]) -> T:
        """Return what the function returns, or raise what it raises.

        Args:
            session: makes the session, and may stop it at the end.
            work: the function.
        """
        arguments = (self._run, session, work)
        thread = threading.Thread(
            target=contextvars.copy_context().run, args=arguments, name="sluicegate-spark-job", daemon=True
        )
        try:
            thread.start()
            return self._outcome.result()
        except BaseException:
            if not self._outcome.done():
                self._cancel()
            raise

    def _run(self, opening: AbstractContextManager[SparkSession], work: Callable[[SparkSession], T]) -> None:
        try:
            with opening as session:
                _add_tag(session, self._tag)
                self._session = session
                if self._is_cancelled.is_set():
                    raise RuntimeError("the job was cancelled before it began")
                result = work(session)
        except BaseException as error:  # noqa: BLE001  (the task's thread raises it)
            self._outcome.set_exception(error)
        else:
            self._outcome.set_result(result)

    def _cancel(self) -> None:
        """Cancel in a thread, because a Spark that does not answer must not keep the task from its end."""
        self._is_cancelled.set()
        threading.Thread(target=self._keep_cancelling, name="sluicegate-spark-cancel", daemon=True).start()
        wait([self._outcome], timeout=_GRACE_SECONDS)

    def _keep_cancelling(self) -> None:
        while not self._outcome.done():
            if self._session is not None:
                _cancel_tag(self._session, self._tag)
            wait([self._outcome], timeout=_AGAIN_SECONDS)


def _add_tag(session: SparkSession, tag: str) -> None:
    """Mark what this thread does in the session, until the thread ends."""
    if _is_classic(session):
        session.sparkContext.addJobTag(tag)
    else:
        session.addTag(tag)


def _cancel_tag(session: SparkSession, tag: str) -> None:
    if _is_classic(session):
        session.sparkContext.cancelJobsWithTag(tag)  # a tag of the session itself is known to its own thread only
    else:
        session.interruptTag(tag)


def _is_classic(session: SparkSession) -> bool:
    """Return whether the session has a SparkContext; one of Spark Connect has none."""
    return getattr(session, "sparkContext", None) is not None
