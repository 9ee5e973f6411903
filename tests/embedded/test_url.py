"""The embedded:// URL, and a client that does nothing before its first command."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate.embedded import EmbeddedOptions, connect, parse_url
from sluicegate.errors import ConfigurationError


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("embedded:///var/tmp/q", EmbeddedOptions(Path("/var/tmp/q"))),
        ("embedded:////var/tmp//q/", EmbeddedOptions(Path("/var/tmp/q"))),
        ("embedded:///a b/🚰", EmbeddedOptions(Path("/a b/🚰"))),
        ("embedded:///a%20b/%F0%9F%9A%B0%3F%25", EmbeddedOptions(Path("/a b/🚰?%"))),
        ("embedded:///q?fsync=always&idle_seconds=0.5", EmbeddedOptions(Path("/q"), "always", 0.5)),
        ("embedded:///q?idle_seconds=30", EmbeddedOptions(Path("/q"), "everysec", 30.0)),
    ],
)
def test_a_url_names_folder_and_options(url: str, options: EmbeddedOptions) -> None:
    assert parse_url(url) == options


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("embedded://", "three slashes and an absolute path, such as embedded:///path/to/orders"),
        ("embedded:///", "names no absolute folder"),
        ("embedded://data/q", "names no absolute folder"),
        ("embedded:data/q", "names no absolute folder"),
        ("embedded:///a%00b", "names no absolute folder"),
        ("redis://localhost/0", "is no embedded URL"),
        ("embedded:///a#b", "write a # in the folder's name as %23"),
        ("embedded:///q?fsnc=always", "unknown option 'fsnc'; there are fsync and idle_seconds"),
        ("embedded:///q?fsync=never", "fsync='never': use 'everysec' or 'always'"),
        ("embedded:///q?fsync=", "fsync='': use 'everysec' or 'always'"),
        ("embedded:///q?idle_seconds=soon", "idle_seconds='soon' is not a number of seconds"),
        ("embedded:///q?idle_seconds=0", "idle_seconds=0.0: use a number of seconds above 0"),
        ("embedded:///q?idle_seconds=nan", "idle_seconds=nan: use a number"),
        ("embedded:///q?fsync=always&fsync=everysec", "the option 'fsync' is given twice"),
    ],
)
def test_a_url_that_cannot_work_says_why(url: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_url(url)
    assert message in str(caught.value)
    with pytest.raises(ConfigurationError):
        connect(url if url.startswith("embedded:") else "")


def test_options_that_name_another_server_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="host does not go with an embedded server"):
        connect("embedded:///q", host="localhost")
    with pytest.raises(ConfigurationError, match="single_connection_client"):
        connect("embedded:///q", single_connection_client=True)
    with pytest.raises(TypeError, match="no_such_option"):
        connect("embedded:///q", no_such_option=1)


def test_a_client_does_nothing_before_its_first_command(home: Path) -> None:
    client = connect(f"embedded://{home}?idle_seconds=5", db=3, decode_responses=True)
    assert not home.exists()
    assert client.set("a", "1")
    assert client.get("a") == "1"
    assert client.info("keyspace").keys() == {"db3"}


def test_a_relative_folder_is_taken_from_here(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    client = connect("home")
    monkeypatch.chdir("/")
    assert client.ping()
    assert (home / "redis.log").exists()
