"""This module opens folders that no other user owns, can write to, or can replace.

On a machine with several users, another user may have made a folder such as `/tmp/orders`. That user could read and
replace the payloads, and make us write through symbolic links. So a folder is opened step by step from `/`, each step
relative to the previous one and without following links, and the checks use the opened directory, not its name.
A parent directory is trusted if it belongs to this user or to root and others can replace nothing in it: they cannot
write to it, or it has the sticky bit, which prevents them from removing and renaming the files of others.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from pathlib import Path

from sluicegate.errors import UnsafeFolderError

__all__ = ["folder_problem", "group_is_own", "is_private", "link_problem", "open_folder", "trusted_way", "way_problem"]

# Parents such as /home may be searched but not read. O_PATH, where there is one, needs no right to read.
_STEP = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
_MAX_LINKS = 40  # as many as Linux follows in one path
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def open_folder(path: Path, *, make: bool = False) -> tuple[Path, int]:
    """Open a folder that belongs to this user alone.

    If others may only read an existing folder, that permission is revoked. A folder that others may write to is
    refused, because its content may be theirs.

    Args:
        path: path of the folder; it may contain links that belong to this user or to root.
        make: whether to create the folder and missing parents.

    Returns:
        The path without links, and a descriptor that the caller closes.

    Raises:
        UnsafeFolderError: another user owns the folder, can write to it, or can replace it.
        OSError: the folder cannot be opened or made.
    """
    where, way = _walk(path, make=make)
    try:
        facts = os.fstat(way)
        _refuse(path, folder_problem(facts, where, os.geteuid()))
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=way)
    finally:
        os.close(way)
    try:
        if facts.st_mode & _OTHERS:
            os.fchmod(folder, stat.S_IMODE(facts.st_mode) & ~_OTHERS)
    except BaseException:
        os.close(folder)
        raise
    return where, folder


def trusted_way(path: Path) -> Path:
    """Return the path without links of a directory, such as /tmp, in which others cannot replace our files.

    Raises:
        UnsafeFolderError: others can replace files in it.
        OSError: the directory cannot be opened.
    """
    where, way = _walk(path)
    try:
        _refuse(path, way_problem(os.fstat(way), where, os.geteuid()))
    finally:
        os.close(way)
    return where


def is_private(path: Path) -> bool:
    """Return whether a directory belongs to this user alone, so that nobody else can have put a socket there."""
    try:
        where, way = _walk(path)
    except (OSError, UnsafeFolderError):
        return False
    try:
        facts = os.fstat(way)
    finally:
        os.close(way)
    return where == path and facts.st_uid == os.geteuid() and not facts.st_mode & _OTHERS


def way_problem(facts: os.stat_result, where: Path, user: int) -> str | None:
    """Say why a directory cannot lead to a user's folder; None when it can."""
    if facts.st_uid not in (user, 0):
        return f"{where} belongs to {_named(facts.st_uid)}, who can replace what is in it; {_elsewhere(user)}"
    if facts.st_mode & stat.S_ISVTX or not _others_may_write(facts, user):
        return None
    return (
        f"others can write to {where} (mode {stat.S_IMODE(facts.st_mode):04o}) and replace what is in it; take that "
        f"right away (chmod go-w), or {_elsewhere(user)}"
    )


def link_problem(facts: os.stat_result, where: Path, user: int) -> str | None:
    """Say why a symbolic link cannot lead to a user's folder; None when it can."""
    if facts.st_uid in (user, 0):
        return None
    return f"{where} is a link of {_named(facts.st_uid)}, who decides where it leads; {_elsewhere(user)}"


def folder_problem(facts: os.stat_result, where: Path, user: int) -> str | None:
    """Say why a folder cannot hold a user's data; None when it can."""
    if facts.st_uid != user:
        return (
            f"{where} belongs to {_named(facts.st_uid)}, and a folder serves only its owner, not "
            f"{_named(user)}; {_elsewhere(user)}"
        )
    if not _others_may_write(facts, user):
        return None
    return (
        f"others can write to {where} (mode {stat.S_IMODE(facts.st_mode):04o}), so what is in it may be theirs; if "
        f"nothing is, take that right away (chmod 700), or {_elsewhere(user)}"
    )


def _others_may_write(facts: os.stat_result, user: int) -> bool:
    if facts.st_mode & stat.S_IWOTH:
        return True
    return bool(facts.st_mode & stat.S_IWGRP) and not group_is_own(facts.st_gid, user)


def group_is_own(group: int, user: int) -> bool:
    """Return whether a group is the private group of a user, with the user's name and no other member.

    Where every user has a private group, new directories are writable by it (umask 002). Group 0 does not count,
    because containers give it to any user.
    """
    try:
        me, ours = pwd.getpwuid(user), grp.getgrgid(group)
    except KeyError:
        return False
    if group == 0 or me.pw_gid != group or ours.gr_name != me.pw_name or set(ours.gr_mem) - {me.pw_name}:
        return False
    return all(other.pw_gid != group or other.pw_uid == user for other in pwd.getpwall())


def _walk(path: Path, *, make: bool = False) -> tuple[Path, int]:
    """Open a directory by steps that others cannot replace; the directory itself is not checked."""
    ahead, names, links = [*reversed(path.absolute().parts)], list[str](), 0
    at = os.open(os.sep, _STEP)
    try:
        while ahead:
            where, name = Path(os.sep, *names), ahead.pop()
            _refuse(path, way_problem(os.fstat(at), where, os.geteuid()))
            try:
                facts = os.stat(name, dir_fd=at, follow_symlinks=False)
            except FileNotFoundError:
                if not make:
                    raise
                _make_directory(name, at, mode=0o755 if ahead else 0o700)
                ahead.append(name)
                continue
            if stat.S_ISLNK(facts.st_mode):
                # The directory was checked, so only its owner can replace the link before it is read.
                _refuse(path, link_problem(facts, where / name, os.geteuid()))
                ahead.extend(reversed(Path(os.readlink(name, dir_fd=at)).parts))
                links += 1
                if links > _MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
                continue
            at = _step(at, name)
            names = _after(names, name)
    except BaseException:
        os.close(at)
        raise
    return Path(os.sep, *names), at


def _after(names: list[str], name: str) -> list[str]:
    if name == os.pardir:
        return names[:-1]
    return [] if name.startswith(os.sep) else [*names, name]


def _step(at: int, name: str) -> int:
    further = os.open(name, _STEP, dir_fd=at)
    os.close(at)
    return further


def _make_directory(name: str, at: int, mode: int) -> None:
    try:
        os.mkdir(name, mode, dir_fd=at)
    except FileExistsError:
        return  # another process made it; it is checked like any other directory


def _refuse(path: Path, problem: str | None) -> None:
    if problem is not None:
        raise UnsafeFolderError(f"the folder {path} cannot be used: {problem}.")


def _named(user: int) -> str:
    try:
        return f"user {user} ({pwd.getpwuid(user).pw_name})"
    except KeyError:
        return f"user {user}"


def _elsewhere(user: int) -> str:
    home = "in /root or /var/lib" if user == 0 else "in your project or in ~/.local/share"
    return f"use a folder of your own, such as one {home}"
