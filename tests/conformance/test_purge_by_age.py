"""A purge of dead letters by age spares the younger ones."""

from __future__ import annotations

import pytest
import redis

from sluicegate import ConfigurationError
from sluicegate.core.keys import StreamKeys
from tests.support.flavours import MakeStream

DEAD = StreamKeys("orders").of_group("g").dead


def test_only_old_dead_letters_go(make_stream: MakeStream, client: redis.Redis) -> None:
    stream = make_stream()
    group = stream.group("g", start="beginning")
    ids = stream.publish_many(str(number) for number in range(1500)).ids
    group.claim(1500, heartbeat=False).bury()
    seconds, _ = client.time()
    old = {name: (int(seconds) - 7200) * 1000 for name in ids[:1100]}
    assert client.zadd(DEAD, old, xx=True, ch=True) == 1100
    assert group.redrive(older_than_seconds=3600, dry_run=True).redriven == 1100
    assert group.purge("dead", older_than_seconds=3600) == 1100
    assert group.depth().dead == 400
    assert [message.id for message in group.peek(1, state="dead")] == [ids[1100]]
    assert group.purge("dead", older_than_seconds=3600) == 0
    assert group.purge("dead") == 400


def test_an_age_needs_dead_letters(make_stream: MakeStream) -> None:
    group = make_stream().group("g", start="beginning")
    with pytest.raises(ConfigurationError, match="older_than_seconds applies to dead letters; leave it out"):
        group.purge("returned", older_than_seconds=5)
    with pytest.raises(ConfigurationError, match="older_than_seconds must be a number of 0 or more"):
        group.purge("dead", older_than_seconds=-1)
