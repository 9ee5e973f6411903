"""What survives when users, the server, the watcher or the files end badly."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from sluicegate.embedded import connect, ensure_server, keeper, stop_server
from sluicegate.errors import EmbeddedServerError
from tests.support.embedded_servers import User, aof_file, keeper_pid, kill, processes_of, runs
from tests.support.waiting import wait_until


def test_a_killed_user_loses_nothing_and_the_server_lives_on(home: Path) -> None:
    user = User(f"embedded://{home}")
    pid = user.do("ensure", str(home))
    for number in range(200):
        user.do("RPUSH", "list", str(number))
    user.end(signal.SIGKILL)
    client = connect(home, decode_responses=True)
    assert client.lrange("list", 0, -1) == [str(number) for number in range(200)]
    assert client.info("server")["process_id"] == pid


class Writer(threading.Thread):
    """Writes numbers, without repeats, until told that the server was killed; keeps when each was acknowledged."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._client = connect(url, retry=Retry(NoBackoff(), 0))
        self.acknowledged: list[float] = []
        self.enough = threading.Event()
        self._killed = threading.Event()

    def run(self) -> None:
        try:
            while not self._killed.is_set():
                self._client.set(f"n:{len(self.acknowledged)}", 1)
                self.acknowledged.append(time.monotonic())
                if self.acknowledged[-1] - self.acknowledged[0] > 2.5:
                    self.enough.set()
        except redis.ConnectionError:
            return

    def kill_the_server_meanwhile(self, pid: int) -> None:
        kill(pid)
        self._killed.set()
        self.join(60)
        assert not self.is_alive()


def test_always_loses_nothing_that_was_acknowledged_to_a_killed_server(home: Path, program: Path) -> None:
    url = f"embedded://{home}?fsync=always"
    writer = Writer(url)
    writer.start()
    wait_until(lambda: len(writer.acknowledged) > 300, "300 writes are acknowledged")
    writer.kill_the_server_meanwhile(ensure_server(home, fsync="always").pid)
    client = connect(url)
    assert len(writer.acknowledged) > 300
    assert client.exists(*(f"n:{number}" for number in range(len(writer.acknowledged)))) == len(writer.acknowledged)


def test_everysec_loses_at_most_the_last_two_seconds_to_a_killed_server(home: Path) -> None:
    writer = Writer(f"embedded://{home}")
    writer.start()
    assert writer.enough.wait(60)
    killed_at = time.monotonic()
    writer.kill_the_server_meanwhile(ensure_server(home).pid)
    old = sum(at < killed_at - 2 for at in writer.acknowledged)
    assert old > 10
    assert connect(home).exists(*(f"n:{number}" for number in range(old))) == old


def test_the_next_command_after_a_kill_starts_the_server_again(home: Path, program: Path) -> None:
    client, neighbour = connect(home), connect(home)
    client.set("a", "1")
    assert neighbour.get("a") == b"1"
    first = ensure_server(home)
    kill(first.pid)
    assert client.get("a") == b"1"
    second = ensure_server(home)
    assert second.pid != first.pid
    assert neighbour.get("a") == b"1"
    assert ensure_server(home) == second
    wait_until(lambda: not first.socket_path.parent.exists(), "the dead server's directory is removed")
    wait_until(lambda: len(processes_of(home)) == 2, "only one server and one watcher are left")


def test_what_a_crash_of_server_and_watcher_leaves_is_healed(home: Path) -> None:
    client = connect(home)
    client.set("a", "1")
    first = ensure_server(home)
    kill(keeper_pid(home))
    kill(first.pid)
    assert first.socket_path.exists()
    assert client.get("a") == b"1"
    # A record that names a living process, and records that are garbage.
    for record in (f"{os.getpid()}\n7.0.0\n{first.socket_path}\n", "", "nonsense", "\0\xff\n" * 3):
        assert stop_server(home)
        (home / keeper.SERVER_LOCK).write_text(record)
        assert client.get("a") == b"1"
    shutil.rmtree(first.socket_path.parent)


def test_a_killed_watcher_is_replaced_by_the_next_joiner(home: Path) -> None:
    client = connect(home)
    client.ping()  # a user, so that the server is not idle before all has been looked at
    server = ensure_server(home)
    old = keeper_pid(home)
    kill(old)
    assert ensure_server(home, idle_seconds=0.2) == server
    assert keeper_pid(home) != old
    client.close()
    wait_until(lambda: not runs(server.pid), "the idle server ends")
    wait_until(lambda: not server.socket_path.parent.exists(), "the private directory is removed")


def test_a_watcher_killed_while_it_was_stopping_the_server_locks_nobody_out(home: Path) -> None:
    server = ensure_server(home)
    kill(keeper_pid(home))
    shut = server.socket_path.with_name(keeper.SHUT_SOCKET)
    server.socket_path.rename(shut)
    assert connect(home).ping()
    assert ensure_server(home) == server
    kill(keeper_pid(home))
    server.socket_path.rename(shut)
    assert stop_server(home)
    shutil.rmtree(server.socket_path.parent)


def test_a_deleted_folder_ends_its_server_and_begins_afresh(home: Path) -> None:
    client = connect(home)
    client.set("a", "1")
    first = ensure_server(home)
    shutil.rmtree(home)
    fresh = connect(home)
    assert fresh.get("a") is None
    assert ensure_server(home).pid != first.pid
    wait_until(lambda: not runs(first.pid), "the server of the deleted folder ends")
    assert client.get("a") is None
    client.set("b", "2")
    assert fresh.get("b") == b"2"


def test_a_moved_folder_keeps_its_server(home: Path, tmp_path: Path) -> None:
    connect(home).set("a", "1")
    server = ensure_server(home)
    moved = tmp_path / "moved"
    home.rename(moved)
    assert ensure_server(moved).pid == server.pid
    assert connect(moved).get("a") == b"1"
    assert stop_server(moved)


def test_a_deleted_socket_is_healed(home: Path) -> None:
    client = connect(home)
    client.set("a", "1")
    first = ensure_server(home)
    wait_until(lambda: client.info("clients")["connected_clients"] == 2, "the watcher is connected")
    first.socket_path.unlink()
    assert connect(home).get("a") == b"1"
    assert ensure_server(home).pid != first.pid
    assert client.get("a") == b"1"


def test_a_file_cut_in_the_middle_of_a_command_loses_only_that_command(home: Path, program: Path) -> None:
    client = connect(home)
    client.set("a", "1")
    assert stop_server(home)
    with aof_file(home).open("ab") as file:
        file.write(b"*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$9\r\ntrunc")
    assert client.get("a") == b"1"
    assert client.get("b") is None


def test_a_damaged_file_is_an_error_with_the_last_lines_of_the_log(home: Path, program: Path) -> None:
    client = connect(home)
    client.set("a", "1")
    assert stop_server(home)
    path = aof_file(home)
    path.write_bytes(b"this is no append-only file\r\n" + path.read_bytes())
    with pytest.raises(EmbeddedServerError) as caught:
        client.get("a")
    assert f"did not start on {home}" in str(caught.value), "told when it ended, not when time was up"
    assert "Bad file format reading the append only file" in str(caught.value)
    wait_until(lambda: not processes_of(home), "nothing is left of the failed start")


def test_data_of_a_newer_server_is_an_error_and_stays_as_it_is(home: Path, program: Path) -> None:
    # A base file in a format of the far future, in the layout used since Redis 7.
    folder = home / "appendonlydir"
    folder.mkdir(parents=True)
    (folder / "appendonly.aof.manifest").write_text(
        "file appendonly.aof.1.base.rdb seq 1 type b\nfile appendonly.aof.1.incr.aof seq 1 type i\n"
    )
    (folder / "appendonly.aof.1.base.rdb").write_bytes(b"REDIS9999" + b"\xff" * 64)
    (folder / "appendonly.aof.1.incr.aof").write_bytes(b"")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(EmbeddedServerError, match=r"Can't handle RDB format version 9999|which Redis 6.* cannot read"):
        ensure_server(home)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_stopped_server_is_an_error_in_time_and_not_a_hang(home: Path) -> None:
    server = ensure_server(home)
    os.kill(server.pid, signal.SIGSTOP)
    try:
        with pytest.raises(EmbeddedServerError, match=rf"\(process {server.pid}\) does not answer"):
            ensure_server(home, start_timeout_seconds=0.5)
        with pytest.raises(EmbeddedServerError, match="did not stop"):
            stop_server(home, timeout_seconds=0.3)
    finally:
        os.kill(server.pid, signal.SIGCONT)
    wait_until(lambda: not runs(server.pid), "the server does what it was told meanwhile")
    assert connect(home).ping()
