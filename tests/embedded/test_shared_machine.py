"""A machine that others use too: no folder of theirs is adopted, and nothing of ours is written where they say."""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sluicegate import ConfigurationError, RedisMessageQueue, UnsafeFolderError
from sluicegate.asyncio import RedisMessageQueue as AsyncQueue
from sluicegate.embedded import async_client, connect, ensure_server, folder, keeper, safety, stop_server
from tests.support.embedded_servers import aof_file
from tests.support.waiting import wait_until

ME, ROOT, OTHER = 1000, 0, 65534
DIRECTORY, LINK = stat.S_IFDIR, stat.S_IFLNK
OURS = (keeper.START_LOCK, keeper.SERVER_LOCK, keeper.LOG)
REDIS_S = ("appendonly.aof", "temp-1.rdb")
PRECIOUS = "what the user wrote\n"


@pytest.fixture
def give_away(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Makes files another user's: truly as root, and else in the eyes of this process."""
    if os.geteuid() == 0:
        return lambda path: os.chown(path, OTHER, OTHER, follow_symlinks=False)
    given = set[tuple[int, int]]()
    true_stat, true_fstat = os.stat, os.fstat

    def seen(facts: os.stat_result) -> os.stat_result:
        if (facts.st_dev, facts.st_ino) not in given:
            return facts
        return os.stat_result((*facts[:4], OTHER, *facts[5:10]))

    monkeypatch.setattr(os, "stat", lambda *args, **options: seen(true_stat(*args, **options)))
    monkeypatch.setattr(os, "fstat", lambda descriptor: seen(true_fstat(descriptor)))

    def give(path: Path) -> None:
        facts = path.lstat()
        given.add((facts.st_dev, facts.st_ino))

    return give


@pytest.fixture
def precious(tmp_path: Path) -> Iterator[Path]:
    """Yield a file of this user's that nothing may be written to."""
    file = tmp_path / "precious"
    file.write_text(PRECIOUS)
    yield file
    assert file.read_text() == PRECIOUS


def plant(home: Path, precious: Path) -> dict[str, str]:
    """Return a folder in which every file that is written to is a link; returns its content."""
    home.mkdir()
    for name in OURS + REDIS_S:
        (home / name).symlink_to(precious)
    return content(home)


def content(home: Path) -> dict[str, str]:
    return {path.name: str(path.readlink()) if path.is_symlink() else "" for path in home.iterdir()}


def test_a_folder_that_another_user_made_is_refused_and_left_alone(
    tmp_path: Path, precious: Path, give_away: Callable[[Path], None]
) -> None:
    home = tmp_path / "home"
    planted = plant(home, precious)
    give_away(home)

    async def publish() -> None:
        await AsyncQueue("orders", url=f"embedded://{home}").publish("secret")

    for use in (
        lambda: ensure_server(home),
        lambda: stop_server(home),
        lambda: connect(home).ping(),
        lambda: asyncio.run(async_client.connect(f"embedded://{home}").ping()),
        lambda: asyncio.run(publish()),
        lambda: RedisMessageQueue("orders", url=f"embedded://{home}").publish("secret"),
    ):
        with pytest.raises(UnsafeFolderError) as caught:
            use()
        assert f"the folder {home} cannot be used: {home} belongs to user {OTHER}" in str(caught.value)
        assert "use a folder of your own" in str(caught.value)
        assert isinstance(caught.value, ConfigurationError)
    assert content(home) == planted
    assert home.stat().st_mode & 0o777 == 0o755


def test_a_folder_that_others_can_replace_is_refused(tmp_path: Path, give_away: Callable[[Path], None]) -> None:
    theirs, home = tmp_path / "theirs", tmp_path / "theirs" / "home"
    home.mkdir(parents=True, mode=0o700)
    give_away(theirs)
    with pytest.raises(UnsafeFolderError, match=f"{theirs} belongs to user {OTHER}"):
        ensure_server(home)
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    for mode in (0o777, 0o757):
        open_to_all.chmod(mode)
        with pytest.raises(UnsafeFolderError, match=rf"others can write to {open_to_all} \(mode 0{mode:o}\)"):
            ensure_server(open_to_all / "deep" / "home")
    assert list(home.iterdir()) == list(open_to_all.iterdir()) == []


def test_a_folder_in_a_shared_one_such_as_tmp_works(tmp_path: Path, give_away: Callable[[Path], None]) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    assert connect(shared / "home").ping()
    assert stop_server(shared / "home")
    (shared / "mine").symlink_to("home")
    assert ensure_server(shared / "mine").folder == shared / "home"
    assert stop_server(shared / "home")
    (shared / "theirs").symlink_to("home")
    give_away(shared / "theirs")
    for through in (shared / "theirs", shared / "theirs" / "deeper"):
        with pytest.raises(UnsafeFolderError, match=f"{shared}/theirs is a link of user {OTHER}"):
            ensure_server(through)


def test_links_lead_on_and_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "down").symlink_to(tmp_path / "a")
    (tmp_path / "a" / "up").symlink_to("../down/./b/..")
    (tmp_path / "round").symlink_to("round")
    where, descriptor = safety.open_folder(tmp_path / "down" / "up" / "b" / ".." / "b")
    assert where == tmp_path / "a" / "b"
    assert os.path.samestat(os.fstat(descriptor), where.stat())
    os.close(descriptor)
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        safety.open_folder(tmp_path / "round" / "home")


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o1777])
def test_a_folder_of_ours_that_others_may_have_written_to_is_refused(tmp_path: Path, mode: int) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(mode)
    with pytest.raises(UnsafeFolderError, match=rf"others can write to {home} \(mode {mode:04o}\).*chmod 700"):
        ensure_server(home)
    assert list(home.iterdir()) == []


def test_a_folder_of_ours_that_others_may_read_is_closed_to_them(home: Path) -> None:
    home.mkdir(mode=0o755)
    assert connect(home).ping()
    assert home.stat().st_mode & 0o777 == 0o700


def test_what_is_made_on_the_way_leads_on_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        where, descriptor = safety.open_folder(tmp_path / "made" / "home", make=True)
    finally:
        os.umask(before)
    os.close(descriptor)
    assert where.stat().st_mode & 0o777 == 0o700
    assert where.parent.stat().st_mode & 0o777 == 0o755


def test_every_file_is_this_user_s_alone_whatever_the_umask(home: Path, program: Path) -> None:
    before = os.umask(0)
    try:
        client = connect(home)
        client.set("a", "1")
        directory = ensure_server(home).socket_path.parent
    finally:
        os.umask(before)
    client.bgrewriteaof()
    wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"], "the rewrite ends")
    files = [home, directory, *home.rglob("*"), *directory.rglob("*")]
    assert len(files) >= 8
    assert {str(file): oct(file.lstat().st_mode) for file in files if file.lstat().st_mode & 0o077} == {}


def test_files_of_an_earlier_version_are_closed_to_others(home: Path, program: Path) -> None:
    client = connect(home)
    client.set("a", "1")
    assert stop_server(home)
    file = aof_file(home)
    file.chmod(0o644)
    assert client.get("a") == b"1"
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("what", "name"),
    [
        *((what, name) for what in ("link", "fifo", "theirs") for name in OURS + REDIS_S),
        *(("hard link", name) for name in OURS),  # backups of append-only files are made with hard links
    ],
)
def test_planted_files_are_refused(
    home: Path, precious: Path, give_away: Callable[[Path], None], what: str, name: str
) -> None:
    home.mkdir(mode=0o700)
    planted = home / name
    if what == "link":
        planted.symlink_to(precious)
    elif what == "hard link":
        planted.hardlink_to(precious)
    elif what == "fifo":
        os.mkfifo(planted)
    else:
        planted.write_text("theirs")
        give_away(planted)
    with pytest.raises(UnsafeFolderError, match=rf"{planted} .*remove"):
        ensure_server(home)
    planted.unlink()


@pytest.mark.parametrize("name", ["appendonlydir", "appendonlydir/appendonly.aof.manifest"])
def test_planted_links_of_the_new_layout_are_refused(home: Path, tmp_path: Path, precious: Path, name: str) -> None:
    planted = home / name
    planted.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
    planted.symlink_to(precious if "/" in name else tmp_path)
    with pytest.raises(UnsafeFolderError, match=rf"{planted} is a link"):
        ensure_server(home)


def test_a_folder_swapped_for_a_link_while_it_is_opened_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, home = tmp_path / "mine", tmp_path / "home"
    mine.mkdir()
    home.mkdir()
    look = os.stat

    def look_just_before_the_swap(path: Any, **options: Any) -> os.stat_result:
        facts = look(path, **options)
        if path == "home" and not home.is_symlink():
            home.rmdir()
            home.symlink_to(mine)
        return facts

    monkeypatch.setattr(os, "stat", look_just_before_the_swap)
    with pytest.raises(OSError, match="Not a directory"):
        safety.open_folder(home)


def test_the_socket_is_not_put_where_others_could_replace_it(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(open_to_all))
    directory = ensure_server(home).socket_path.parent
    assert directory.parent != open_to_all
    assert list(open_to_all.iterdir()) == []
    assert safety.is_private(directory)
    refuse = UnsafeFolderError("others can write to it")
    monkeypatch.setattr(safety, "trusted_way", lambda path: (_ for _ in ()).throw(refuse))
    with pytest.raises(UnsafeFolderError, match="socket can be made: others can write to it; set TMPDIR"):
        folder.make_socket_path()


def facts(kind: int, mode: int, user: int, group: int = 100) -> os.stat_result:
    return os.stat_result((kind | mode, 1, 1, 1, user, group, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("mode", "user", "problem"),
    [
        (0o755, ROOT, None),
        (0o700, ME, None),
        (0o1777, ROOT, None),
        (0o1777, ME, None),
        (0o1775, ROOT, None),
        (0o755, OTHER, f"/on/the/way belongs to user {OTHER}"),
        (0o1777, OTHER, f"/on/the/way belongs to user {OTHER}"),
        (0o775, ROOT, "others can write to /on/the/way (mode 0775)"),
        (0o775, ME, "others can write to /on/the/way (mode 0775)"),
        (0o757, ME, "others can write to /on/the/way (mode 0757)"),
    ],
)
def test_who_may_lead_to_a_folder(mode: int, user: int, problem: str | None) -> None:
    said = safety.way_problem(facts(DIRECTORY, mode, user), Path("/on/the/way"), ME)
    assert said is None if problem is None else problem in str(said)


@pytest.mark.parametrize(
    ("mode", "user", "problem"),
    [
        (0o700, ME, None),
        (0o755, ME, None),
        (0o700, ROOT, "/data belongs to user 0 (root)"),
        (0o700, OTHER, f"/data belongs to user {OTHER}"),
        (0o770, ME, "others can write to /data (mode 0770)"),
        (0o1777, ME, "others can write to /data (mode 1777)"),
    ],
)
def test_whose_folder_holds_data(mode: int, user: int, problem: str | None) -> None:
    said = safety.folder_problem(facts(DIRECTORY, mode, user), Path("/data"), ME)
    assert said is None if problem is None else problem in str(said)


@pytest.mark.parametrize(("user", "refused"), [(ME, False), (ROOT, False), (OTHER, True)])
def test_whose_links_are_followed(user: int, refused: bool) -> None:
    assert bool(safety.link_problem(facts(LINK, 0o777, user), Path("/link"), ME)) == refused


def test_root_uses_no_folder_below_one_of_an_ordinary_user() -> None:
    said = safety.way_problem(facts(DIRECTORY, 0o755, ME), Path("/users/me"), ROOT)
    assert said is not None
    assert "use a folder of your own, such as one in /root or /var/lib" in said


@pytest.mark.parametrize(
    ("group", "name", "members", "others", "own"),
    [
        (ME, "me", [], [], True),
        (ME, "me", ["me"], [], True),
        (ME, "me", ["me", "you"], [], False),
        (ME, "me", [], [("you", ME)], False),
        (ME, "team", [], [], False),
        (100, "me", [], [], False),
        (0, "me", [], [], False),
    ],
)
def test_a_group_of_one_user_is_that_user(
    monkeypatch: pytest.MonkeyPatch, group: int, name: str, members: list[str], others: list[tuple[str, int]], own: bool
) -> None:
    me = SimpleNamespace(pw_uid=ME, pw_gid=ME if group else 0, pw_name="me")
    rest = [SimpleNamespace(pw_uid=2000, pw_gid=gid, pw_name=user) for user, gid in others]
    monkeypatch.setattr(pwd, "getpwuid", lambda _: me)
    monkeypatch.setattr(pwd, "getpwall", lambda: [me, *rest])
    monkeypatch.setattr(grp, "getgrgid", lambda _: SimpleNamespace(gr_name=name, gr_mem=members))
    assert safety.group_is_own(group, ME) == own
    said = safety.folder_problem(facts(DIRECTORY, 0o775, ME, group), Path("/data"), ME)
    assert (said is None) == own
