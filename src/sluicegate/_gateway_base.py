"""What both gateways have in common: options, when to try again, what is sent, what a reply or an error means."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from inspect import Parameter, signature
from typing import Any

import redis
import redis.asyncio
import tenacity
from redis import exceptions as redis_errors

from sluicegate import checks
from sluicegate._redis import error_mapping
from sluicegate._redis.cluster_routes import Node, Routes
from sluicegate._redis.connection import Address
from sluicegate.config import GONE_OPTIONS, RENAMED_OPTIONS, QueueConfig
from sluicegate.core.call import Call
from sluicegate.errors import ConfigurationError, RetryBudgetExhaustedError

__all__ = [
    "ASKING",
    "CONNECTION_FOR",
    "MAX_REDIRECTS",
    "OPTIONS_ELSEWHERE",
    "STOP_SLICE_SECONDS",
    "TROUBLE",
    "WAIT_MARGIN_SECONDS",
    "Command",
    "Course",
    "GatewayBase",
    "RetryNote",
    "Stage",
    "commands",
    "derived_pool",
    "elapsed_clock",
    "heard",
    "is_alone",
    "is_passing",
    "known_nodes",
    "node_options",
    "owner",
    "reply_seconds",
    "sentinels",
]

Command = tuple[bytes | int | str | float, ...]
_log = logging.getLogger("sluicegate")
_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

TROUBLE = (redis_errors.RedisError, redis_errors.RedisClusterException, OSError)  # of sending and receiving
ASKING: tuple[Command, ...] = (("ASKING",),)
MAX_REDIRECTS = 5  # of one attempt; a cluster that sends us round in circles is asked again after a pause
STOP_SLICE_SECONDS = 0.1  # between looks at whether a wait should end
WAIT_MARGIN_SECONDS = 5.0  # how much later than asked for the reply to a blocking command may come
_SINGLE_TIMEOUT_SECONDS = 5.0
_NO_CAP = 2**31  # redis-py 8 allows 100 unless told otherwise
# Before redis-py 5.3 a pool wants to be told the command; later ones warn when they are.
_COMMAND_NAME = signature(redis.ConnectionPool.get_connection).parameters["command_name"]
CONNECTION_FOR = ("EVALSHA",) if _COMMAND_NAME.default is Parameter.empty else ()
# Bound to the pool or cluster client that they came with; a pool made from the same options makes its own.
_BOUND_OPTIONS = ("connection_pool", "maint_notifications_pool_handler", "oss_cluster_maint_notifications_handler")


OPTIONS_ELSEWHERE = {
    there: f"give it to the queue: RedisMessageQueue({here}=...)"
    for there, here in ({field.name: field.name for field in fields(QueueConfig)} | RENAMED_OPTIONS).items()
} | {**GONE_OPTIONS, "client": "its name is redis_client"}
"""Options that a gateway does not take: what to do instead."""


def elapsed_clock() -> float:
    """Seconds by a clock that counts suspension where the system has one."""
    return time.clock_gettime(_CLOCK)


@dataclass(frozen=True, slots=True)
class RetryNote:
    """An attempt failed, and another will be made.

    Attributes:
        script: the transition, by the name of its script.
        attempt: how many attempts were made.
        seconds: the pause before the next.
        error: what the last attempt raised.
    """

    script: str
    attempt: int
    seconds: float
    error: BaseException


@dataclass(slots=True)
class Course:
    """How one call went so far.

    Attributes:
        doubtful: whether an attempt failed in a way that leaves open whether it took effect.
    """

    doubtful: bool = False


class Stage:
    """What connections are for; each stage has connections of its own."""

    CALLS = "calls"
    SINGLE = "single"  # one bounded attempt, so that a hung server holds its caller a few seconds at most
    WAITING = "waiting"


def derived_pool(pool: Any, stage: str, no_retry: object) -> Any:
    """A pool for a stage that leads to the same place as the user's; nothing below it retries."""
    options = _options(pool.connection_kwargs, stage, no_retry)
    kind = pool.connection_class
    if hasattr(pool, "service_name"):
        options.update(connection_class=kind, is_master=pool.is_master)
        return type(pool)(pool.service_name, pool.sentinel_manager, **options)
    plain = redis.asyncio.ConnectionPool if isinstance(pool, redis.asyncio.ConnectionPool) else redis.ConnectionPool
    return plain(connection_class=_with_timeout(kind), **options)


def _with_timeout(kind: Any) -> Any:
    """A class of connections that keeps its timeout: redis-py 5.0 forgets that of a unix socket."""
    plain = redis.UnixDomainSocketConnection
    if not issubclass(kind, plain) or plain(path="", socket_timeout=1).socket_timeout == 1:  # type: ignore[abstract,no-untyped-call]
        return kind

    class WithTimeout(kind):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.socket_timeout = options.get("socket_timeout")

    return WithTimeout


def node_options(options: dict[str, Any], stage: str, no_retry: object, node: Node) -> dict[str, Any]:
    """Options of a pool for a stage and a node of a cluster, from those of another node."""
    derived = _options(options, stage, no_retry)
    derived.pop("redis_connect_func", None)  # sends READONLY, which is for replicas; scripts belong on the primary
    derived.update(host=node[0], port=node[1])
    return derived


def owner(client: Any, key: bytes) -> Node:
    """The node that has a key as a cluster client sees it; any node when it does not know."""
    try:
        found = client.get_node_from_key(key)
    except (redis_errors.RedisClusterException, KeyError, IndexError):
        found = None
    return known_nodes(client)[0] if found is None else (found.host, int(found.port))


def known_nodes(client: Any) -> list[Node]:
    """The nodes that a cluster client knows, those it started with last."""
    nodes = [*client.get_nodes(), *client.nodes_manager.startup_nodes.values()]
    if not nodes:
        raise redis_errors.ClusterDownError("CLUSTERDOWN the client knows no node")
    return [(node.host, int(node.port)) for node in nodes]


def sentinels(client: Any) -> Sequence[Any]:
    """The clients of Sentinels through which a client finds its primary."""
    manager = getattr(getattr(client, "connection_pool", None), "sentinel_manager", None)
    return manager.sentinels if manager is not None else ()


def heard(reply: Any) -> Any:
    """The reply to a blocking command; one that tells of a failover is raised, so that the connection is dropped."""
    if is_passing(reply) and error_mapping.redirection(reply) is None:
        raise reply
    return reply


def is_alone(pool: Any) -> bool:
    """Whether a pool has one connection only, which others would miss while a reply on it is yet to be read."""
    return getattr(pool, "max_connections", None) == 1


def is_passing(reply: object) -> bool:
    """Whether a reply is an error that another attempt may not meet."""
    return isinstance(reply, Exception) and error_mapping.is_transient(reply)


def _options(options: dict[str, Any], stage: str, no_retry: object) -> dict[str, Any]:
    derived = {name: value for name, value in options.items() if name not in _BOUND_OPTIONS}
    derived["retry"] = no_retry
    if stage != Stage.CALLS:  # as many as sleepers and beating gateways: one that finds none would ask again and again
        derived["max_connections"] = _NO_CAP
    if stage == Stage.SINGLE:
        for name in ("socket_timeout", "socket_connect_timeout"):
            derived[name] = min(options.get(name) or _SINGLE_TIMEOUT_SECONDS, _SINGLE_TIMEOUT_SECONDS)
    return derived


def commands(call: Call[Any], *, text: bool = False) -> list[Command]:
    """What is sent for a call: the script by its hash or by its text, and what stands right behind it."""
    name, script = ("EVAL", call.script.text) if text else ("EVALSHA", call.script.sha)
    sent: list[Command] = [(name, script, len(call.keys), *call.keys, *call.args)]
    if call.then:
        sent.append(call.then)
    return sent


def reply_seconds(call: Call[Any]) -> float | None:
    """How long the reply to `then` may take, None when there is none: the last word of WAIT and WAITAOF is a time."""
    return int(call.then[-1]) / 1000 + WAIT_MARGIN_SECONDS if call.then else None


class GatewayBase:
    """Options and decisions of a gateway; its subclasses do the I/O."""

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
        self._routes = Routes()
        self._knows: set[bytes] = set()  # commands that the server is known to have
        self._pause = tenacity.wait_random_exponential(
            multiplier=retry_initial_delay_seconds, max=retry_max_delay_seconds
        )

    @property
    def server(self) -> str:
        """Where this gateway connects to, in words."""
        raise NotImplementedError

    @property
    def client(self) -> Any:
        """The client, made on first use."""
        raise NotImplementedError

    def _may_pass(self, course: Course, error: BaseException) -> bool:
        """Whether to try again after an attempt: what went wrong may pass, and somebody was there at some time.

        Also takes from the error what is to be remembered of the attempt.
        """
        if not error_mapping.is_transient(error):
            return False
        nothing_sent = not self._reached or error_mapping.is_exhausted(error) or error_mapping.cannot_connect(error)
        if not nothing_sent and not error_mapping.is_refusal(error):
            course.doubtful = True
        if error_mapping.answered(error):
            self._reached = True
        return self._reached or not self._nobody_answers(error)

    def _nobody_answers(self, error: BaseException) -> bool:
        """Whether nobody is there, wherever this gateway may connect to: of several servers one is enough, if it is to
        be trusted.
        """
        if error_mapping.is_untrusted(error):
            return True
        if isinstance(error, redis_errors.RedisClusterException):  # its client found no node; there may be no client
            return error_mapping.cannot_connect(error)
        client = self.client
        if isinstance(client, (redis.RedisCluster, redis.asyncio.RedisCluster)):
            return False
        if known := sentinels(client):
            return error_mapping.unasked_sentinels(error) >= len(known)
        return error_mapping.cannot_connect(error)

    def _policy(self, call: Call[Any], course: Course, notes: list[RetryNote], start: float) -> dict[str, Any]:
        """Options for tenacity: tried again while it may help, the last time when the budget ends.

        What is worth telling about an attempt is left in `notes`, for the sleep that follows it.
        """
        budget = self.retry_budget_seconds
        if call.patience_seconds is not None:
            budget = min(budget, call.patience_seconds)

        def left() -> float:
            return budget - (elapsed_clock() - start)

        def note(state: tenacity.RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            seconds = state.next_action.sleep if state.next_action else 0.0
            assert error is not None
            _log.warning("Redis at %s: %s, attempt %d", self.server, type(error).__name__, state.attempt_number)
            notes[:] = [RetryNote(call.script.name, state.attempt_number, seconds, error)]

        return {
            "retry": tenacity.retry_if_exception(partial(self._may_pass, course)),
            "wait": lambda state: max(0.0, min(self._pause(state), left())),
            "stop": lambda state: left() <= 0,
            "before_sleep": note,
            "reraise": True,
        }

    def _result(self, call: Call[Any], replies: Sequence[Any]) -> Any:
        """The result of a call from its raw replies.

        An error in answer to the script is raised. One in answer to `then` is part of the result, unless trying again
        may help: what the script did is done.
        """
        if isinstance(replies[0], Exception):
            raise replies[0]
        if not call.then:
            return call.decode(replies[0])
        if isinstance(replies[1], Exception) and error_mapping.is_transient(replies[1]):
            raise redis_errors.ConnectionError(f"{call.then[0]!r} behind a script failed: {replies[1]}") from replies[1]
        return call.decode(replies[0]), replies[1]

    def _explained(self, call: Call[Any], course: Course, error: Exception, *, retried: bool) -> Exception | None:
        """Our error for one of redis-py's, None when it is not one that we name."""
        if error_mapping.is_transient(error):
            return self._given_up(call, course, error, retried=retried)
        if denied := error_mapping.access_refused(self.server, error):
            return denied
        if isinstance(error, redis_errors.RedisClusterException):
            return error_mapping.unavailable(self.server, error)
        return error_mapping.refusal(call, error) if isinstance(error, redis_errors.ResponseError) else None

    def _given_up(self, call: Call[Any], course: Course, error: Exception, *, retried: bool) -> Exception:
        """The error for trouble that did not pass; it says whether the call may have taken effect."""
        if not self._reached and self._nobody_answers(error):
            return error_mapping.unavailable(self.server, error)
        spent = f"retried for {self.retry_budget_seconds:g} s" if retried else "not retried"
        known: Exception = error_mapping.unavailable(self.server, error)
        if error_mapping.is_refusal(error):
            why = error_mapping.refused_in_doubt if course.doubtful else error_mapping.refused
            known = why(self.server, call.script.name, error)
        elif error_mapping.is_exhausted(error) and not course.doubtful:
            known = error_mapping.exhausted(self.server, error)
        elif self._reached:
            known = RetryBudgetExhaustedError(str(known))
        return type(known)(f"{known} ({spent})")

    def _met(self, reply: Any) -> None:
        """Take the reply to the first PING: whatever was answered, the server was reached, and the call's own reply
        tells the rest. One that cannot save its data refuses a PING, but not to be looked at.
        """
        if isinstance(reply, Exception):
            if error_mapping.access_refused(self.server, reply) and not isinstance(
                reply, redis_errors.NoPermissionError
            ):
                raise reply
            _log.debug("%s answered the first PING with %s; it was reached all the same", self.server, reply)
        self._reached = True

    def _redirected(self, redirect: error_mapping.Redirect, node: Node | None) -> Node:
        """Where to go on.

        Raises:
            ConfigurationError: the client is not made for a cluster.
        """
        if node is None:
            raise ConfigurationError(
                f"Redis at {self.server} is a node of a cluster; use a RedisCluster client or a redis+cluster:// URL"
            )
        return redirect.host or node[0], redirect.port

    def _needs_check(self, call: Call[Any]) -> bytes | None:
        """The command behind a call's script, when nobody knows yet whether the server has it."""
        if not call.then or call.then[0] == b"WAIT":
            return None
        name = bytes(call.then[0]) if isinstance(call.then[0], bytes) else str(call.then[0]).encode()
        return None if name in self._knows else name

    def _learn(self, name: bytes, reply: Any) -> None:
        """Take the reply to COMMAND INFO; a user who may not ask finds out by using the command.

        Raises:
            ConfigurationError: the server is too old for the command.
        """
        if isinstance(reply, Exception) and not isinstance(reply, redis_errors.NoPermissionError):
            raise reply
        if isinstance(reply, (list, tuple)) and not any(reply):
            raise ConfigurationError(
                f"durability 'fsync' needs {name.decode()}, which servers have from Redis 7.2 on; the one at "
                f"{self.server} is older. Nothing was sent: use 'memory' or replicated(n), or a newer server"
            )
        self._knows.add(name)
