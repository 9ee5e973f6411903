"""The part of a gateway without I/O: options, retries, commands, and the meaning of replies and errors."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import tenacity

from sluicegate import checks
from sluicegate._redis import error_mapping
from sluicegate._redis.cluster_routes import Node
from sluicegate._redis.compat import is_pool_exhausted, unasked_sentinels
from sluicegate._redis.connection import Address, client_decodes, describe_client, is_cluster_client
from sluicegate._redis.pools_base import WAIT_MARGIN_SECONDS, Command, sentinels
from sluicegate.clock import elapsed_clock
from sluicegate.config import GONE_OPTIONS, RENAMED_OPTIONS, QueueConfig
from sluicegate.core.call import Call
from sluicegate.errors import ConfigurationError, RetryBudgetExhaustedError

__all__ = ["MAX_REDIRECTS", "OPTIONS_ELSEWHERE", "Course", "GatewayBase", "RetryNote", "commands", "reply_seconds"]

_log = logging.getLogger("sluicegate")

MAX_REDIRECTS = 5  # of one attempt; a cluster whose nodes redirect in circles is asked again after a pause

OPTIONS_ELSEWHERE = {
    there: f"give it to the queue: RedisMessageQueue({here}=...)"
    for there, here in ({field.name: field.name for field in fields(QueueConfig)} | RENAMED_OPTIONS).items()
} | {**GONE_OPTIONS, "client": "its name is redis_client"}
"""Options that a gateway does not take: what to do instead."""


@dataclass(frozen=True, slots=True)
class RetryNote:
    """Reports that an attempt failed and that another follows.

    Attributes:
        verb: the operation whose call failed.
        attempt: how many attempts were made.
        seconds: the pause before the next.
        error: what the last attempt raised.
    """

    verb: str
    attempt: int
    seconds: float
    error: BaseException


@dataclass(slots=True)
class Course:
    """Keeps how one call went so far.

    Attributes:
        doubtful: whether an attempt failed in a way that leaves open whether it took effect.
    """

    doubtful: bool = False


def commands(call: Call[Any], *, text: bool = False) -> list[Command]:
    """Return the commands of a call: the script by its hash or by its text, then the call's `then`."""
    name, script = ("EVAL", call.script.text) if text else ("EVALSHA", call.script.sha)
    sent: list[Command] = [(name, script, len(call.keys), *call.keys, *call.args)]
    if call.then:
        sent.append(call.then)
    return sent


def reply_seconds(call: Call[Any]) -> float | None:
    """Return how long the reply to `then` may take, None without one; WAIT and WAITAOF end in their timeout."""
    return int(call.then[-1]) / 1000 + WAIT_MARGIN_SECONDS if call.then else None


class GatewayBase:
    """Holds the options and decisions of a gateway; its subclasses do the I/O."""

    def __init__(
        self,
        *,
        redis_client: object | None,
        url: str | None,
        retry_budget_seconds: float,
        retry_initial_delay_seconds: float,
        retry_max_delay_seconds: float,
    ) -> None:
        if (redis_client is None) == (url is None):
            raise ConfigurationError("give exactly one of redis_client and url")
        for name, value in (
            ("retry_budget_seconds", retry_budget_seconds),
            ("retry_initial_delay_seconds", retry_initial_delay_seconds),
            ("retry_max_delay_seconds", retry_max_delay_seconds),
        ):
            checks.not_negative(name, value)
        self.address = Address.parse(url) if url is not None else None
        self.retry_budget_seconds = retry_budget_seconds
        self._reached = False
        self._given = redis_client
        self._knows: set[bytes] = set()  # commands that the server is known to have
        self._pause = tenacity.wait_random_exponential(
            multiplier=retry_initial_delay_seconds, max=retry_max_delay_seconds
        )

    @property
    def client(self) -> Any:
        """Return the client, which is made on first use."""
        raise NotImplementedError

    @property
    def server(self) -> str:
        """Return where this gateway connects to, in words."""
        return self.address.server if self.address else describe_client(self._given)

    @property
    def decodes_responses(self) -> bool:
        """Return whether the client was made with `decode_responses=True`, so that its user expects str."""
        return self.address.decode_responses if self.address else client_decodes(self._given)

    def _may_pass(self, course: Course, error: BaseException) -> bool:
        """Return whether to try again: the failure may pass, and the server was reached at some time.

        Also records whether the attempt reached the server and whether it may have taken effect.
        """
        if not error_mapping.is_transient(error):
            return False
        nothing_sent = not self._reached or is_pool_exhausted(error) or error_mapping.cannot_connect(error)
        if not nothing_sent and not error_mapping.is_refusal(error):
            course.doubtful = True
        if error_mapping.answered(error):
            self._reached = True
        return self._reached or not self._nobody_answers(error)

    def _nobody_answers(self, error: BaseException) -> bool:
        """Return whether none of the servers that this gateway knows can be connected to and trusted."""
        if error_mapping.is_untrusted(error):
            return True
        if error_mapping.is_cluster_error(error):  # its client found no node; there may be no client
            return error_mapping.cannot_connect(error)
        client = self.client
        if is_cluster_client(client):
            return False
        if known := sentinels(client):
            return unasked_sentinels(error) >= len(known)
        return error_mapping.cannot_connect(error)

    def _policy(self, call: Call[Any], course: Course, notes: list[RetryNote], start: float) -> dict[str, Any]:
        """Return the options for tenacity: retry while that may help, for the last time when the budget ends.

        The note about an attempt is left in `notes`, for the sleep that follows it.
        """
        budget = self._budget(call)

        def left() -> float:
            return budget - (elapsed_clock() - start)

        def note(state: tenacity.RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            seconds = state.next_action.sleep if state.next_action else 0.0
            assert error is not None
            _log.warning("Redis at %s: %s, attempt %d", self.server, type(error).__name__, state.attempt_number)
            notes[:] = [RetryNote(call.script.verb, state.attempt_number, seconds, error)]

        return {
            "retry": tenacity.retry_if_exception(partial(self._may_pass, course)),
            "wait": lambda state: max(0.0, min(self._pause(state), left())),
            "stop": lambda state: left() <= 0,
            "before_sleep": note,
            "reraise": True,
        }

    def _budget(self, call: Call[Any]) -> float:
        """Return how many seconds a call may be retried."""
        if call.patience_seconds is None:
            return self.retry_budget_seconds
        return min(self.retry_budget_seconds, call.patience_seconds)

    def _result(self, call: Call[Any], replies: Sequence[Any]) -> Any:
        """Return the result of a call from its raw replies.

        An error in answer to the script is raised. One in answer to `then` is part of the result, unless trying again
        may help: what the script did is done.
        """
        if isinstance(replies[0], Exception):
            raise replies[0]
        if not call.then:
            return call.decode(replies[0])
        if isinstance(replies[1], Exception) and error_mapping.is_transient(replies[1]):
            text = f"{call.then[0]!r} behind a script failed: {replies[1]}"
            raise error_mapping.connection_lost(text) from replies[1]
        return call.decode(replies[0]), replies[1]

    def _explained(self, call: Call[Any], course: Course, error: Exception, *, retried: bool) -> Exception | None:
        """Return our error for one of redis-py's, None when there is no class for it."""
        if error_mapping.is_transient(error):
            return self._given_up(call, course, error, retried=retried)
        if denied := error_mapping.access_refused(self.server, error):
            return denied
        if error_mapping.is_cluster_error(error):
            return error_mapping.unavailable(self.server, error)
        return error_mapping.refusal(call, error)

    def _given_up(self, call: Call[Any], course: Course, error: Exception, *, retried: bool) -> Exception:
        """Return the error for a failure that did not pass; it says whether the call may have taken effect."""
        if not self._reached and self._nobody_answers(error):
            return error_mapping.unavailable(self.server, error)
        spent = f"retried for {self._budget(call):.3g} s" if retried else "not retried"
        known: Exception = error_mapping.unavailable(self.server, error)
        if error_mapping.is_refusal(error):
            why = error_mapping.refused_in_doubt if course.doubtful else error_mapping.refused
            known = why(self.server, call.script.verb, error)
        elif is_pool_exhausted(error) and not course.doubtful:
            known = error_mapping.exhausted(self.server, error)
        elif self._reached:
            known = RetryBudgetExhaustedError(str(known))
        return type(known)(f"{known} ({spent})")

    def _mark_reached(self, reply: Any) -> None:
        """Record that the server was reached, whatever it answered to the first PING.

        The call's own reply shows what is wrong. A server that cannot save its data refuses PING, but not reads.
        """
        if isinstance(reply, Exception):
            if error_mapping.access_refused(self.server, reply) and not error_mapping.is_missing_right(reply):
                raise reply
            _log.debug("%s answered the first PING with %s; it was reached all the same", self.server, reply)
        self._reached = True

    def _redirected(self, redirect: error_mapping.Redirect, node: Node | None) -> Node:
        """Return the node that a redirection names.

        Raises:
            ConfigurationError: the client is not made for a cluster.
        """
        if node is None:
            raise ConfigurationError(
                f"Redis at {self.server} is a node of a cluster; use a RedisCluster client or a redis+cluster:// URL"
            )
        return redirect.host or node[0], redirect.port

    def _needs_check(self, call: Call[Any]) -> bytes | None:
        """Return the command in `then` if it is not yet known whether the server has it."""
        if not call.then or call.then[0] == b"WAIT":
            return None
        name = bytes(call.then[0]) if isinstance(call.then[0], bytes) else str(call.then[0]).encode()
        return None if name in self._knows else name

    def _learn(self, name: bytes, reply: Any) -> None:
        """Record the reply to COMMAND INFO; without the right to ask, the command itself has to tell.

        Raises:
            ConfigurationError: the server is too old for the command.
        """
        if isinstance(reply, Exception) and not error_mapping.is_missing_right(reply):
            raise reply
        if isinstance(reply, (list, tuple)) and not any(reply):
            raise ConfigurationError(
                f"durability 'fsync' needs {name.decode()}, which servers have from Redis 7.2 on; the one at "
                f"{self.server} is older. Nothing was sent: use 'memory' or replicated(n), or a newer server"
            )
        self._knows.add(name)
