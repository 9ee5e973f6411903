"""A server without users goes away, and nobody who joins meanwhile notices."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.backoff import NoBackoff
from redis.retry import Retry

from sluicegate.embedded import connect, ensure_server, keeper, stop_server
from tests.support.embedded_servers import User, keeper_pid, kill, processes_of, runs
from tests.support.waiting import wait_until


def test_an_idle_server_goes_away_and_leaves_only_its_data(home: Path, program: Path) -> None:
    client = connect(f"embedded://{home}?idle_seconds=0.3")
    client.set("a", "1")
    server, watcher = ensure_server(home), keeper_pid(home)
    client.close()
    wait_until(lambda: not runs(server.pid) and not runs(watcher), "server and watcher end")
    assert processes_of(home) == []
    assert not Path(f"/proc/{server.pid}").exists(), "the watcher reaps its server"
    assert not server.socket_path.parent.exists()
    assert client.get("a") == b"1"
    assert ensure_server(home).pid != server.pid


def test_a_killed_user_stops_counting_by_itself(home: Path) -> None:
    user = User(f"embedded://{home}?idle_seconds=0.3")
    assert user.do("PING") is True
    pid = ensure_server(home).pid
    kill(user.process.pid)
    user.process.communicate(timeout=60)
    wait_until(lambda: not runs(pid), "the server ends")


def test_a_connected_user_who_is_silent_keeps_the_server(home: Path) -> None:
    client = connect(f"embedded://{home}?idle_seconds=0.2")
    pid = client.info("server")["process_id"]
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        assert runs(pid)
        time.sleep(0.05)
    assert client.info("server")["process_id"] == pid


def test_joiners_around_the_idle_time_never_see_an_error_and_nothing_is_lost(home: Path) -> None:
    url, rounds, errors = f"embedded://{home}?idle_seconds=0.1", 25, []
    pids = set()

    def come_and_go(seed: int) -> None:
        chance = random.Random(seed)
        try:
            for _ in range(rounds):
                client = connect(url, retry=Retry(NoBackoff(), 0))
                client.incr("count")
                pids.add(client.info("server")["process_id"])
                client.close()
                time.sleep(chance.uniform(0.08, 0.2))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=come_and_go, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert connect(url).get("count") == str(2 * rounds).encode()
    assert len(pids) > 2


class FakeClock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def watch(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[keeper.Keeper, FakeClock]]:
    """Yield a watcher of a running server in this process, in place of the real one."""
    server = ensure_server(home, idle_seconds=600)
    kill(keeper_pid(home))
    monkeypatch.chdir(home)
    clock = FakeClock()
    watcher = keeper.Keeper(str(server.socket_path), 60, clock=clock)
    yield watcher, clock
    watcher._close_link()
    stop_server(home)
    watcher._remove_directory()


def test_the_watcher_counts_connections_and_visits(watch: tuple[keeper.Keeper, FakeClock], home: Path) -> None:
    watcher, clock = watch
    assert watcher.run_once() == keeper.BUSY
    assert watcher.run_once() == keeper.QUIET
    client = connect(home)
    client.ping()
    # The client's first command joined, which replaced the killed watcher: two watch now, and see each other.
    kill(keeper_pid(home))
    clock.now = 100
    assert watcher.run_once() == keeper.BUSY
    clock.now = 1000
    assert watcher.run_once() == keeper.BUSY
    client.close()
    wait_until(lambda: watcher.run_once() == keeper.QUIET, "the client is gone")
    clock.now += 59
    assert watcher.run_once() == keeper.QUIET
    visitor = connect(home)
    visitor.connection_pool.connection_kwargs["locator"].socket_path = lambda: watcher._socket_path
    visitor.ping()
    visitor.close()
    clock.now += 59
    assert watcher.run_once() == keeper.BUSY
    clock.now += 61
    assert watcher.run_once() == keeper.GONE


def test_a_user_who_gets_in_just_before_the_gate_shuts_is_not_thrown_out(
    watch: tuple[keeper.Keeper, FakeClock], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher, clock = watch
    assert watcher.run_once() == keeper.BUSY
    visitors = []
    rename = keeper.os.rename

    def rename_just_after_a_visitor(source: Any, target: Any) -> None:
        if target.endswith(keeper.SHUT_SOCKET):
            visitors.append(keeper.Link(source))
        rename(source, target)

    monkeypatch.setattr(keeper.os, "rename", rename_just_after_a_visitor)
    clock.now = 61
    assert watcher.run_once() == keeper.BUSY
    assert visitors[0].ask("PING") == b"+PONG"
    assert keeper.Link(watcher._socket_path).ask("PING") == b"+PONG"


def test_a_start_under_way_puts_the_stop_off(watch: tuple[keeper.Keeper, FakeClock], home: Path) -> None:
    watcher, clock = watch
    assert watcher.run_once() == keeper.BUSY
    clock.now = 61
    lock = keeper.open_lock(home / keeper.START_LOCK)
    assert keeper.try_lock(lock)
    assert watcher.run_once() == keeper.BUSY
    keeper.os.close(lock)
    assert watcher.run_once() == keeper.GONE


def test_a_start_that_opens_no_socket_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    clock = FakeClock()
    with subprocess.Popen(["sleep", "600"]) as child:
        watcher = keeper.Keeper(str(tmp_path / "private" / keeper.SOCKET), 60, child.pid, clock)
        clock.now = 29
        assert watcher.run_once() == keeper.STARTING
        assert runs(child.pid)
        clock.now = 31
        assert watcher.run_once() == keeper.STARTING
        wait_until(lambda: watcher.run_once() == keeper.GONE, "the child ends and is reaped")
        assert not Path(f"/proc/{child.pid}").exists()
