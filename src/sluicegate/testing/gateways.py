"""This test kit checks whether your own gateway fulfils the contract of `Gateway`.

    def test_my_gateway():
        check_gateway(lambda: MyGateway("redis.example", 6379), redis.Redis("redis.example", 6379))

Each function checks one promise; `check_gateway` and `check_async_gateway` run all of them. No other program may use
the server, because the checks pause its writes for moments and cut connections to it.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from types import MappingProxyType
from typing import Any, TypeVar

import redis
from redis.exceptions import RedisError

from sluicegate._gateway_base import RetryNote
from sluicegate.asyncio.gateway import Gateway as AsyncGateway
from sluicegate.core.call import Call, Wait
from sluicegate.core.scripts import Header, Script
from sluicegate.errors import RetryBudgetExhaustedError
from sluicegate.gateway import Gateway
from sluicegate.heartbeat_schedule import MAX_HEARTBEAT_SECONDS

__all__ = ["check_async_gateway", "check_gateway"]

T = TypeVar("T")
MakeGateway = Callable[[], Gateway]
_HEADER = Header((), (), True, True, MappingProxyType({}))
_PATIENCE_SECONDS = 30.0  # for actions that take effect at once, even on a busy machine
_LONG_SECONDS = 90.0
_ASKED_WITHIN_SECONDS = (
    1.0  # the promise is 0.2; the shortest of many gaps is measured, which a busy machine delays least
)


def check_gateway(make_gateway: MakeGateway, redis_client: redis.Redis) -> None:
    """Check every promise of `sluicegate.gateway.Gateway`, which takes several seconds.

    Args:
        make_gateway: makes a gateway that connects to the server.
        redis_client: a client of that server, with the permission to pause it and to cut connections.

    Raises:
        AssertionError: a promise is broken; the text names it.
    """
    for check in (
        check_replies_are_read_raw,
        check_an_unknown_script_is_sent_whole,
        check_what_stands_behind_a_script,
        check_a_lost_connection_is_survived,
        check_a_call_sent_ahead,
        check_a_refusal_is_not_repeated,
        check_one_attempt_is_short,
        check_a_wake_up_ends_a_wait,
        check_a_wait_ends,
        check_a_stop_ends_a_wait,
        check_many_at_once,
        check_closing,
    ):
        gateway = make_gateway()
        try:
            check(gateway, redis_client)
        finally:
            gateway.close()


def check_async_gateway(make_gateway: Callable[[], AsyncGateway], redis_client: redis.Redis) -> None:
    """Check every promise of `sluicegate.asyncio.gateway.Gateway`, from synchronous code.

    Args:
        make_gateway: makes a gateway that connects to the server; called in the event loop in which it is used.
        redis_client: a synchronous client of that server.

    Raises:
        AssertionError: a promise is broken; the text names it.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="check-gateway")
    thread.start()
    try:
        check_gateway(lambda: _Blocking(make_gateway, loop), redis_client)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def check_replies_are_read_raw(gateway: Gateway, redis_client: redis.Redis) -> None:
    """Check that `decode` receives bytes, ints, None and lists, whatever client and protocol are used."""
    call = _call("return {KEYS[1], ARGV[1], 7, false, {'\\255'}}", args=(b"caf\xc3\xa9",))
    _expect(gateway.execute(call), [call.keys[0], b"caf\xc3\xa9", 7, None, [b"\xff"]], "raw replies")
    counted = _call("return 3", decode=lambda reply: reply + 1)
    _expect(gateway.execute(counted), 4, "the decoder's result")


def check_an_unknown_script_is_sent_whole(gateway: Gateway, redis_client: redis.Redis) -> None:
    """Check that a script that the server does not know runs once, and is known afterwards."""
    call = _call("return redis.call('INCR', KEYS[1])")
    _expect(redis_client.script_exists(call.script.sha.decode()), [False], "a script that was not sent yet")
    _expect([gateway.execute(call), gateway.execute(call)], [1, 2], "one effect per call")
    _expect(redis_client.script_exists(call.script.sha.decode()), [True], "the script, known by its hash")


def check_what_stands_behind_a_script(gateway: Gateway, redis_client: redis.Redis) -> None:
    """Check that `then` is sent on the script's own connection, and that its reply or error is the second result."""
    body = "return redis.call('INCR', KEYS[1])"
    for _ in range(2):  # the server knows the script the second time
        decoded, behind = gateway.execute(_call(body, then=(b"WAIT", 0, 50)))
        _expect((decoded, isinstance(behind, int)), (1, True), "the decoded reply and that of WAIT")
    decoded, behind = gateway.execute(_call(body, then=(b"WAIT", b"many", 50)))
    _expect((decoded, isinstance(behind, RedisError)), (1, True), "the decoded reply and WAIT's refusal, as a value")


def check_a_lost_connection_is_survived(gateway: Gateway, redis_client: redis.Redis) -> None:
    """Check that a call whose connection breaks is sent again with its new age, and that `on_retry` is called."""
    gateway.execute(_call("return 1"))  # the gateway has reached its server
    call = _call("return {redis.call('INCR', KEYS[1]), ARGV[1]}", args=(0,), elapsed_arg=0)
    notes: list[RetryNote] = []
    with _paused(redis_client), ThreadPoolExecutor(1) as pool:
        running = pool.submit(gateway.execute, call, on_retry=notes.append)
        stuck = _until(lambda: _held_back(redis_client), "a script that a paused server holds back")
        time.sleep(0.05)  # makes the second attempt older
        for client in stuck:
            redis_client.client_kill_filter(_id=client["id"])
        redis_client.client_unpause()
        count, age = running.result(_PATIENCE_SECONDS)
    _expect(count, 1, "one effect")
    assert int(age) >= 25, f"the second attempt sent an age of {int(age)} ms, which is that of the first"
    _expect([(note.attempt, note.verb) for note in notes], [(1, call.script.verb)], "what on_retry received")


def check_a_call_sent_ahead(gateway: Gateway, redis_client: redis.Redis) -> None:
    """Check that a call sent ahead gets its own reply, whatever is executed or lost in between."""
    gateway.execute(_call("return 1"))  # from here on it has reached its server
    ahead = _call("redis.call('INCR', KEYS[1]) return ARGV[1]", args=(b"ahead",))
    receive = gateway.send(ahead)
    _expect(gateway.execute(_call("return 2")), 2, "the reply to a call between sending and receiving")
    _expect(receive(), b"ahead", "the reply to the call that was sent ahead")
    _expect(_number(redis_client, ahead), 1, "one effect")
    behind = _call("return redis.call('INCR', KEYS[1])", then=(b"WAIT", 0, 50))
    result: Any = gateway.send(behind)()
    _expect(isinstance(result, tuple) and len(result), 2, "a pair, the decoded reply and that of WAIT")
    _expect((result[0], isinstance(result[1], int)), (1, True), "the decoded reply and that of WAIT")
    receive = gateway.send(_call("return ARGV[1]", args=(b"cut",)))
    redis_client.client_kill_filter(_type="normal", skipme=True)
    _expect(receive(), b"cut", "the reply to a call whose connection was cut after it was sent")


def check_a_refusal_is_not_repeated(gateway: Gateway, redis_client: redis.Redis) -> None:
    """Check that an error that no repetition can cure is raised at once."""
    call = _call("redis.call('INCR', KEYS[1]) return redis.error_reply('ERR no such luck')")
    raised: Exception | None = None
    try:
        gateway.execute(call)
    except RedisError as error:
        raised = error
    assert "no such luck" in str(raised), f"a script's error was raised as {raised!r}"
    _expect(_number(redis_client, call), 1, "the number of attempts at a call that the server refuses")


def check_one_attempt_is_short(gateway: Gateway, redis_client: redis.Redis) -> None:
    """Check that a call without retries fails within a few seconds of silence."""
    gateway.execute(_call("return 1"))
    with _paused(redis_client):
        begun = time.monotonic()
        try:
            gateway.execute(_call("return 1"), retry=False)
        except RetryBudgetExhaustedError:
            pass
        else:
            raise AssertionError("a server that is silent answered")
        took = time.monotonic() - begun
    assert took < MAX_HEARTBEAT_SECONDS, f"one attempt took {took:.1f} s; a heartbeat would delay all others"
    _expect(gateway.execute(_call("return 2")), 2, "a reply to the next call and not to the last")


def check_a_wake_up_ends_a_wait(gateway: Gateway, redis_client: redis.Redis) -> None:
    """Check that a wake-up ends a wait at once and takes the token, and that other calls are not blocked meanwhile."""
    bell = _key()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(gateway.wait, Wait(bell, _LONG_SECONDS))
        _until(lambda: redis_client.info("clients")["blocked_clients"], "a wait that blocks on the server")
        _expect(gateway.execute(_call("return 1")), 1, "a call beside a wait")
        redis_client.lpush(bell.decode(), "1")
        _expect(waiting.result(_PATIENCE_SECONDS), True, "the result of a wait after a wake-up")
    _expect(redis_client.exists(bell.decode()), 0, "the number of tokens left")


def check_a_wait_ends(gateway: Gateway, redis_client: redis.Redis) -> None:
    """Check that a wait ends when its time is over."""
    begun = time.monotonic()
    _expect(gateway.wait(Wait(_key(), 0.3), lambda: False), False, "the result of a wait without a wake-up")
    took = time.monotonic() - begun
    assert 0.25 <= took < _PATIENCE_SECONDS, f"a wait of 0.3 s took {took:.2f} s"


def check_a_stop_ends_a_wait(gateway: Gateway, redis_client: redis.Redis) -> None:
    """Check that a wait polls `stopped()`, ends once it is true, and does not leave its connection blocked."""
    stop = _Stop()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(gateway.wait, Wait(_key(), _LONG_SECONDS), stop)
        _until(lambda: waiting.done() or redis_client.info("clients")["blocked_clients"], "a wait that blocks")
        _until(lambda: waiting.done() or stop.is_asked_often(), "a wait that polls often enough whether it must stop")
        assert not waiting.done(), "a wait ended before its time, without a wake-up or a stop"
        stop.now.set()
        _expect(waiting.result(_PATIENCE_SECONDS), False, "the result of a stopped wait")
    _until(lambda: not redis_client.info("clients")["blocked_clients"], "a server without blocked clients")


class _Stop:
    """A wait polls this object to learn whether it must stop."""

    def __init__(self) -> None:
        self.now = threading.Event()
        self._asked: list[float] = []

    def __call__(self) -> bool:
        self._asked.append(time.monotonic())
        return self.now.is_set()

    def is_asked_often(self) -> bool:
        """Return whether two polls were close enough for a prompt stop; polls at the same moment count as one."""
        gaps = [later - earlier for earlier, later in pairwise([*self._asked])]
        return any(0.01 < gap < _ASKED_WITHIN_SECONDS for gap in gaps)


def check_many_at_once(gateway: Gateway, redis_client: redis.Redis) -> None:
    """Check that concurrent calls of many threads or tasks get the replies to their own calls."""
    key = _key()
    calls = [_call("redis.call('INCR', KEYS[1]) return ARGV[1]", key=key, args=(str(n).encode(),)) for n in range(200)]
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(gateway.execute, calls))
    _expect([int(reply) for reply in replies], list(range(200)), "each caller's own reply")
    _expect(_number(redis_client, calls[0]), 200, "one effect per call")


def check_closing(gateway: Gateway, redis_client: redis.Redis) -> None:
    """Check that a gateway can be closed before its first call and twice, and used again afterwards."""
    gateway.close()
    gateway.close()
    _expect(gateway.execute(_call("return 1")), 1, "a call after closing")
    gateway.close()
    _expect(gateway.execute(_call("return 2"), retry=False), 2, "a call after closing again")
    assert gateway.server, "its `server` does not name where it connects to"
    assert gateway.retry_budget_seconds >= 0, "its retry budget is negative"


class _Blocking:
    """This class gives an asyncio gateway the interface of a synchronous one."""

    def __init__(self, make_gateway: Callable[[], AsyncGateway], loop: asyncio.AbstractEventLoop) -> None:
        async def make() -> AsyncGateway:
            return make_gateway()

        self._loop = loop
        self._target = self._run(make())
        self.retry_budget_seconds = self._target.retry_budget_seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def execute(self, call: Call[T], *, retry: bool = True, on_retry: Callable[[RetryNote], Any] | None = None) -> T:
        result: T = self._run(self._target.execute(call, retry=retry, on_retry=on_retry))
        return result

    def send(self, call: Call[T], *, on_retry: Callable[[RetryNote], Any] | None = None) -> Callable[[], T]:
        receive = self._run(self._target.send(call, on_retry=on_retry))
        return lambda: self._run(receive())

    def wait(self, wait: Wait, stopped: Callable[[], bool] | None = None) -> bool:
        return bool(self._run(self._target.wait(wait, stopped)))

    def close(self) -> None:
        self._run(self._target.aclose())

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(2 * _LONG_SECONDS)


def _key() -> bytes:
    return f"sluicegate:{{check-{uuid.uuid4().hex}}}:bell".encode()


def _call(
    body: str, *, key: bytes | None = None, decode: Callable[[Any], T] | None = None, **options: Any
) -> Call[Any]:
    """Make a call of a script that no server has seen, on an unused key unless one is given."""
    key = key or _key()
    text = f"local check = '{key.decode()}'\n{body}".encode()
    script = Script("check", "check", text, hashlib.sha1(text).hexdigest().encode(), _HEADER)  # noqa: S324  (Redis' own name)
    options.setdefault("args", ())
    return Call(script, (key,), decode=decode or (lambda reply: reply), **options)


def _number(redis_client: redis.Redis, call: Call[Any]) -> int:
    stored: Any = redis_client.get(call.keys[0].decode())
    return int(stored)


def _expect(found: object, expected: object, what: str) -> None:
    assert found == expected, f"expected {what}: {expected!r}, not {found!r}"


def _until(condition: Callable[[], T], what: str) -> T:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {_PATIENCE_SECONDS:g} s without result for {what}"
        time.sleep(0.01)
    return found


@contextmanager
def _paused(redis_client: redis.Redis) -> Iterator[None]:
    """Make the server accept scripts without answering them."""
    redis_client.client_pause(int(_LONG_SECONDS * 1000), all=False)
    try:
        yield
    finally:
        redis_client.client_unpause()


def _held_back(redis_client: redis.Redis) -> list[dict[str, Any]]:
    clients: list[dict[str, Any]] = redis_client.client_list()
    return [client for client in clients if "b" in client["flags"] and client["cmd"] in ("eval", "evalsha")]
