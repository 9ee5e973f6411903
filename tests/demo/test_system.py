"""Java, which only the system can give."""

from __future__ import annotations

from pathlib import Path

import pytest

from example_dags.demo.system import NoJavaError, find_java


def java(folder: Path, version: str) -> Path:
    """Return a program that says that it is a Java of this version."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "java"
    program.write_text(f"""#!/bin/sh\necho 'openjdk version "{version}" 2025-01-01' >&2\n""")
    program.chmod(0o755)
    return program


def test_the_java_on_the_path_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java(tmp_path, "21.0.2")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    assert find_java() == 21


def test_java_home_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java(tmp_path / "on-path", "21")
    java(tmp_path / "home" / "bin", "17.0.9")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "on-path"), prepend=":")

    assert find_java() == 17


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.21"])
def test_a_java_that_is_too_old_is_refused_with_the_package_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    java(tmp_path, version)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    with pytest.raises(NoJavaError, match=r"Java 17 or newer.*\n.*apt-get install -y openjdk-\d+-jre-headless"):
        find_java()


def test_no_java_at_all_names_the_package_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(NoJavaError, match=r"there is none here.*\n.*apt-get install"):
        find_java()


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(NoJavaError, match=f"JAVA_HOME={tmp_path} names none"):
        find_java()
