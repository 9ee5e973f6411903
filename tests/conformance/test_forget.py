"""A forget frees a deduplication key, whichever message owns it; a late call frees none."""

from __future__ import annotations

import pytest
import redis

from sluicegate.errors import ConfigurationError
from tests.support import markers
from tests.support.core_administration import Admin


@pytest.fixture
def admin(client: redis.Redis) -> Admin:
    return Admin(client)


def test_a_held_key_is_freed_and_its_message_stays(admin: Admin) -> None:
    admin.send("a", "b", keyed=True)
    assert admin.forget("a") is True
    assert admin.marker("a") is None
    assert admin.marker("b") is not None
    assert admin.names("pending") == ["a", "b"]
    assert admin.events == [("forget", "success", 1)]
    admin.send("a", keyed=True)


def test_a_free_key(admin: Admin) -> None:
    assert admin.forget("a") is False
    assert admin.events == []


@pytest.mark.parametrize("key", ["{a}:%b", "x" * 300, "#é\n"])
def test_any_key(admin: Admin, key: str) -> None:
    from sluicegate.core.entry import encode_deduplication_key

    markers.hold(admin.client, admin.keys, encode_deduplication_key(key), "owner", px=600_000)
    assert admin.forget(key) is True
    assert markers.held(admin.client, admin.keys) == {}


def test_keys_that_cannot_be(admin: Admin) -> None:
    with pytest.raises(ConfigurationError, match="empty"):
        admin.forget("")
    with pytest.raises(ConfigurationError, match="surrogate"):
        admin.forget("\ud800")
    with pytest.raises(TypeError, match="int"):
        admin.forget(7)  # type: ignore[arg-type]


def test_executed_twice_it_says_the_same(admin: Admin) -> None:
    admin.send("a", keyed=True)
    admin.between = admin.do
    assert admin.forget("a") is True


def test_executed_late_it_frees_no_key_that_was_taken_since(admin: Admin) -> None:
    admin.send("a", keyed=True)
    admin.forget("a")
    (successor,) = admin.send("a", keyed=True)
    for call in admin.calls:
        admin.do(call)
    assert admin.marker("a") == successor.encode()
