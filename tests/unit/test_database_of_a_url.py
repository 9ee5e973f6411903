"""The path of a URL is a database: one that is no number, or that the server does not have, is refused."""

from __future__ import annotations

import pytest

from sluicegate import RedisMessageQueue
from sluicegate._redis.connection import Address
from sluicegate.errors import ConfigurationError, RedisAccessError
from tests.support.servers import RedisServer


@pytest.mark.parametrize("path", ["/orders", "/0/1", "/-1", "/1x", "/٣"])
@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_a_path_that_is_no_number_is_refused(scheme: str, path: str) -> None:
    with pytest.raises(ConfigurationError, match="the path of a url is the number of its database"):
        Address.parse(f"{scheme}://:S3CR3Tpw@db:7{path}")


@pytest.mark.parametrize("path", ["", "/", "/0", "/15", "/3/"])
def test_a_number_or_none_is_accepted(path: str) -> None:
    assert Address.parse(f"redis://db:7{path}").server == "db:7"


def test_a_database_that_the_server_does_not_have_is_explained(server: RedisServer) -> None:
    queue = RedisMessageQueue("orders", url=f"{server.url}?db=999")

    with pytest.raises(RedisAccessError, match="has no database of that number"):
        queue.depth()
