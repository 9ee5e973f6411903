"""One server per folder: started, joined, shared, refused."""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluicegate.embedded import connect, ensure_server, keeper, stop_server
from sluicegate.embedded import folder as on_disk
from sluicegate.errors import ConfigurationError, EmbeddedServerError
from tests.support.embedded_servers import User, fake_program, keeper_pid, kill, processes_of, record_of, runs
from tests.support.waiting import wait_until


def test_the_server_is_private_and_keeps_everything(home: Path, program: Path) -> None:
    client = connect(home, decode_responses=True)
    expected = {
        "port": "0",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "aof-load-truncated": "yes",
        "save": "",
        "maxmemory-policy": "noeviction",
        "protected-mode": "yes",
        "unixsocketperm": "700",
        "dir": str(home),
    }
    assert {name: client.config_get(name)[name] for name in expected} == expected
    server = ensure_server(home)
    assert server.folder == home
    assert server.pid == client.info("server")["process_id"]
    assert server.version == client.info("server")["redis_version"]
    assert server.socket_path.parent.stat().st_mode & 0o777 == 0o700
    assert server.socket_path.stat().st_mode & 0o777 == 0o700
    assert home not in server.socket_path.parents
    assert home.stat().st_mode & 0o777 == 0o700


def test_start_up_is_quick(home: Path, program: Path) -> None:
    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        assert connect(home).ping()
        seconds.append(time.perf_counter() - begin)
        assert stop_server(home)
    print(f"start-up of {program}: median {statistics.median(seconds):.3f} s, longest {max(seconds):.3f} s")
    assert min(seconds) < 3


def test_another_process_joins_and_sees_the_data(home: Path) -> None:
    client = connect(home)
    client.set("from", "here")
    user = User(f"embedded://{home}")
    assert user.do("GET", "from") == "here"
    assert user.do("SET", "back", "there") is True
    assert client.get("back") == b"there"
    assert user.do("ensure", str(home)) == ensure_server(home).pid
    user.end()


def test_eight_processes_at_once_start_one_server(home: Path) -> None:
    users = [User(f"embedded://{home}") for _ in range(8)]
    for user in users:
        user.send("ensure", str(home))
    pids = {user.receive() for user in users}
    assert pids == {ensure_server(home).pid}
    assert len(processes_of(home)) == 2  # the server and its watcher
    for user in users:
        user.end()


def test_two_folders_have_two_servers(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    first, second = connect(home), connect(other)
    first.set("a", "1")
    assert second.get("a") is None
    assert ensure_server(home).pid != ensure_server(other).pid
    assert stop_server(other)


def test_a_link_to_the_folder_is_the_same_folder(home: Path, tmp_path: Path) -> None:
    server = ensure_server(home)
    (tmp_path / "link").symlink_to(home)
    assert ensure_server(tmp_path / "link") == server


def test_a_long_path_with_spaces_and_emoji(tmp_path: Path, program: Path) -> None:
    folder = tmp_path / "a folder 🚰 'of' \"water\" \\x41 %20" / ("long " * 20).strip() / "ünïcode"
    assert len(os.fsencode(folder)) > 107
    client = connect(folder)
    client.set("a", "1")
    server = ensure_server(folder)
    assert len(os.fsencode(server.socket_path)) <= on_disk.SOCKET_PATH_BYTES
    kill(server.pid)
    assert client.get("a") == b"1"
    assert stop_server(folder)


def test_a_long_or_odd_folder_for_temporary_files(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "odd 🚰"))
    (tmp_path / "odd 🚰").mkdir()
    assert connect(home).ping()
    socket_path = ensure_server(home).socket_path
    long = tmp_path / ("t" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    assert ensure_server(home).socket_path == socket_path
    assert stop_server(home)
    assert connect(home).ping()
    assert len(os.fsencode(ensure_server(home).socket_path)) <= on_disk.SOCKET_PATH_BYTES
    assert list(long.iterdir()) == []


def test_the_server_outlives_its_starter_and_the_ctrl_c_of_its_starter(home: Path) -> None:
    users = [User(f"embedded://{home}"), User(f"embedded://{home}")]
    assert users[0].do("SET", "a", "1") is True
    pid = users[1].do("ensure", str(home))
    os.killpg(users[0].process.pid, signal.SIGINT)
    users[0].process.communicate(timeout=60)
    assert users[0].process.returncode != 0
    assert runs(pid)
    assert runs(keeper_pid(home))
    assert users[1].do("GET", "a") == "1"
    users[1].end()
    assert runs(pid)


def test_a_joiner_s_always_makes_the_server_stricter_and_everysec_never_relaxes_it(home: Path) -> None:
    relaxed = connect(home, decode_responses=True)
    assert relaxed.config_get("appendfsync") == {"appendfsync": "everysec"}
    strict = connect(f"embedded://{home}?fsync=always", decode_responses=True)
    assert strict.config_get("appendfsync") == {"appendfsync": "always"}
    kill(ensure_server(home).pid)
    assert relaxed.config_get("appendfsync") == {"appendfsync": "everysec"}
    assert strict.config_get("appendfsync") == {"appendfsync": "always"}
    assert ensure_server(home).pid == ensure_server(home, fsync="everysec").pid
    assert relaxed.config_get("appendfsync") == {"appendfsync": "always"}


def test_options_that_cannot_work_are_refused_before_anything_is_made(home: Path) -> None:
    with pytest.raises(ConfigurationError, match="idle_seconds=-1"):
        ensure_server(home, idle_seconds=-1)
    assert not home.exists()


def test_stop_server_saves_and_ends(home: Path) -> None:
    assert not stop_server(home)
    assert not home.exists()
    client = connect(home)
    client.set("a", "1")
    server = ensure_server(home)
    assert stop_server(home)
    assert not runs(server.pid)
    assert not stop_server(home)
    assert client.get("a") == b"1"


def test_a_program_that_ends_at_once_is_reported_with_its_last_words(home: Path, tmp_path: Path) -> None:
    broken = fake_program(tmp_path / "broken", "echo the disk is on fire >&2; exit 3")
    with pytest.raises(EmbeddedServerError) as caught:
        ensure_server(home, server=broken, start_timeout_seconds=100)
    assert str(caught.value).startswith(f"Redis 7.0.0 ({broken}) did not start on {home}; the last lines of")
    assert "the disk is on fire" in str(caught.value)


def test_a_start_that_fails_early_says_why_and_leaves_nothing(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    (home / keeper.LOG).mkdir(parents=True)
    with pytest.raises(EmbeddedServerError, match=rf"the server of {home} cannot be started: .*Is a directory"):
        ensure_server(home)
    assert list(temporary.iterdir()) == []
    (home / keeper.LOG).rmdir()
    assert connect(home).ping()


def test_a_program_that_never_answers_is_reported_in_time(home: Path, tmp_path: Path) -> None:
    silent = fake_program(tmp_path / "silent", "exec sleep 600")
    with pytest.raises(EmbeddedServerError, match=r"\(process \d+\) does not answer on its socket"):
        ensure_server(home, server=silent, start_timeout_seconds=0.5)
    record = record_of(home)
    assert record is not None
    kill(record.pid)
    assert connect(home).ping()


def test_a_socket_in_a_place_that_others_can_reach_is_refused(home: Path) -> None:
    directory = ensure_server(home).socket_path.parent
    client = connect(home)
    for break_it, mend_it in (
        (lambda: directory.chmod(0o755), lambda: directory.chmod(0o700)),
        (lambda: shutil.move(directory, f"{directory}-x"), lambda: shutil.move(f"{directory}-x", directory)),
    ):
        assert client.ping()
        client.connection_pool.disconnect()
        break_it()
        if not directory.exists():
            directory.symlink_to(f"{directory}-x")
        try:
            with pytest.raises(EmbeddedServerError, match=f"{directory}, .* is not private to user {os.geteuid()}"):
                client.ping()
        finally:
            if directory.is_symlink():
                directory.unlink()
            mend_it()
    assert client.ping()


@contextmanager
def an_ordinary_owner_of(folder: Path) -> Iterator[None]:
    """Give up root's right to write everywhere, when the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.chown(folder, 65534, -1)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    a_file = tmp_path / "file"
    a_file.write_text("")
    for folder in (a_file, a_file / "q"):
        with pytest.raises(EmbeddedServerError, match=f"the data folder {folder} cannot be opened or made: Not a dir"):
            ensure_server(folder)
    read_only = Path(tempfile.mkdtemp())
    read_only.chmod(0o555)
    try:
        with an_ordinary_owner_of(read_only):
            with pytest.raises(EmbeddedServerError, match=f"the data folder {read_only} cannot be written by user"):
                ensure_server(read_only)
            with pytest.raises(EmbeddedServerError, match=f"{read_only}/q cannot be opened or made: Permission denied"):
                connect(read_only / "q").ping()
    finally:
        shutil.rmtree(read_only)


def test_the_lock_is_free_again_although_a_forked_child_shares_the_open_file(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    folder = on_disk.open_data_folder(tmp_path)
    with on_disk.exclusive(folder, time.monotonic() + 5):
        child = os.fork()
        if child == 0:
            os.close(write_end)
            os.read(read_end, 1)
            os._exit(0)
        with (
            pytest.raises(EmbeddedServerError, match="starting or stopping the server"),
            on_disk.exclusive(folder, time.monotonic()),
        ):
            pass
    try:
        assert not on_disk.is_locked(keeper.START_LOCK, folder)
    finally:
        os.close(folder.descriptor)
        os.close(write_end)
        os.waitpid(child, 0)
        os.close(read_end)


def test_the_package_works_from_a_zip_file(home: Path, tmp_path: Path) -> None:
    source = Path(on_disk.__file__).parents[2]
    archive = tmp_path / "package"
    shutil.copytree(source / "sluicegate", archive / "sluicegate", ignore=shutil.ignore_patterns("__pycache__"))
    zipped = shutil.make_archive(str(tmp_path / "packed"), "zip", archive)
    user = User(f"embedded://{home}", PYTHONPATH=zipped)
    assert user.do("SET", "a", "1") is True
    assert connect(home).get("a") == b"1"
    user.end()


def test_a_starter_with_odd_signal_settings_starts_a_sound_server(home: Path) -> None:
    ignored = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        client = connect(home)
        client.set("a", "1")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        signal.signal(signal.SIGCHLD, ignored)
    client.bgrewriteaof()
    wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"], "the rewrite ends")
    assert client.info("persistence")["aof_last_bgrewrite_status"] == "ok"
    assert client.info("persistence")["aof_last_rewrite_time_sec"] >= 0
    server, watcher = ensure_server(home), keeper_pid(home)
    os.kill(server.pid, signal.SIGTERM)
    wait_until(lambda: not runs(server.pid) and not runs(watcher), "server and watcher end")
