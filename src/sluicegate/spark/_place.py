"""Read which queue, or which stream and group, the options of a read or write name."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from sluicegate.consumer import QueueConsumer
from sluicegate.errors import ConfigurationError
from sluicegate.opening import open_place, open_spec
from sluicegate.place import Place, is_place_url
from sluicegate.queue import RedisMessageQueue
from sluicegate.spark._option_rules import GivenOptions, count
from sluicegate.spec import QueueSpec
from sluicegate.streams import RedisStreamQueue

__all__ = [
    "QUEUE_OPTIONS",
    "PublishTarget",
    "Role",
    "check_named_place",
    "place_of",
    "publisher_of",
    "queue_of",
    "spec_of",
]

PublishTarget: TypeAlias = RedisMessageQueue | RedisStreamQueue
"""What a write publishes to."""
Role: TypeAlias = Literal["consumer", "publisher"]
"""What a use does with the place: a read and a streaming query consume, a write publishes."""

QUEUE_OPTIONS = ("spec", "url", "queue", "stream", "group", "maxDeliveryCount")
"""The options that name a queue, a stream or a group of a stream; every use has them."""

_MAX_DELIVERY_COUNT = 4000


def queue_of(spec: str) -> QueueConsumer:
    """Return the queue or group that a spec describes, to consume from; it connects at its first command."""
    return open_spec(QueueSpec.from_json(spec))


def publisher_of(spec: QueueSpec) -> PublishTarget:
    """Return the queue or stream that a spec describes, to publish to; it connects at its first command."""
    return RedisStreamQueue.from_spec(spec) if spec.kind == "stream" else RedisMessageQueue.from_spec(spec)


def place_of(named: QueueConsumer | QueueSpec) -> Place:
    """Return what a consumer or a spec names; as text it is what an error or a log line says."""
    if isinstance(named, QueueSpec):
        return Place(named.name, named.kind in ("stream", "group"), named.group)
    return Place(named.name, named.group_name is not None, named.group_name)


def check_named_place(given: GivenOptions) -> None:
    """Refuse options that name a place which cannot be serialized, before it is known what is done with it.

    Raises:
        ConfigurationError: above all a password, which the query plan would show.
    """
    url, named = given.text("url"), given.text("queue") or given.text("stream")
    if given.text("spec") is not None or (url is not None and (named is not None or is_place_url(url))):
        _spec(given)


def spec_of(given: GivenOptions, role: Role) -> str:
    """Return the spec of the named queue, stream or group, as JSON without a secret.

    Raises:
        ConfigurationError: the options do not name exactly one of them, or the role cannot work with it.
    """
    spec = _spec(given)
    found = QueueSpec.from_json(spec)
    if role == "consumer" and found.kind == "stream":
        raise ConfigurationError(
            f"{given.use} consumes from a group, and stream {found.name!r} may have several: give the option group "
            "beside stream, or .options(**sluicegate.spark.options(stream.group('name')))"
        )
    if role == "publisher" and found.kind == "group":
        raise ConfigurationError(
            f"{given.use} publishes to a stream for all of its groups, so group {found.group!r} has no effect; leave "
            "the option group out, or write .options(**sluicegate.spark.options(stream)) with the stream itself"
        )
    if role == "publisher" and found.kind == "jobs":
        raise ConfigurationError(
            f"{found.name!r} is a queue of jobs, and {given.use} publishes messages without the record of a job; "
            "enqueue jobs with RedisJobQueue.enqueue_many"
        )
    return spec


def _spec(given: GivenOptions) -> str:
    spec = given.text("spec")
    if spec is not None:
        others = [option for option in QUEUE_OPTIONS[1:] if given.text(option) is not None]
        if others:
            raise ConfigurationError(
                f"option spec names the queue whole, or the stream and group; leave {' and '.join(others)} out"
            )
        return _checked_spec(spec)
    url, place = _named_place(given)
    named: QueueSpec = open_place(place, url=url, **_own_options(given, place)).spec()
    return named.to_json()


def _named_place(given: GivenOptions) -> tuple[str, Place]:
    """Return where Redis is and what is named there, from options or from a URL that names both."""
    _, url, queue, stream, group, _ = map(given.text, QUEUE_OPTIONS)
    if url is not None and is_place_url(url):
        redis_url, place = Place.parse_url(url)
        if queue is not None or stream is not None or (group is not None and place.group is not None):
            raise ConfigurationError(
                f"option url names {place} already; leave the options queue, stream and group out, or write a url "
                "without +sluicegate"
            )
        return redis_url, place if group is None else Place(place.name, place.stream, group)
    if queue is not None and stream is not None:
        raise ConfigurationError(
            f"options queue and stream exclude each other; leave out queue to use stream {stream!r}, or stream to use "
            f"queue {queue!r}"
        )
    named = queue if queue is not None else stream
    if url is None or named is None:
        missing = " and ".join(option for option, value in (("url", url), ("queue", named)) if value is None)
        raise ConfigurationError(
            f"{given.use} from or to a queue needs the option {missing}: .option('url', 'redis://host:6379/0') "
            "and .option('queue', 'name'), or for a stream .option('stream', 'name') with, for a read, "
            ".option('group', 'name'), or .options(**sluicegate.spark.options(queue)). Those of a table "
            "(CREATE TABLE, saveAsTable) Spark hands to no data source in Python: use CREATE TEMPORARY VIEW"
        )
    if queue is not None and group is not None:
        raise ConfigurationError(
            f"option group names a group of a stream, and {queue!r} is given as a queue; give the option stream "
            "instead of queue, or leave group out"
        )
    return url, Place.named(queue, stream=stream, group=group)


def _own_options(given: GivenOptions, place: Place) -> dict[str, Any]:
    """Return the options of the place itself that are given beside its name."""
    most = given.text("maxDeliveryCount")
    if most is None:
        return {}
    if place.stream and place.group is None:
        raise ConfigurationError(
            "maxDeliveryCount is how often a consumer gets a message, so a stream without a group has none; leave it "
            "out"
        )
    return {
        "max_delivery_count": None if most.lower() == "none" else count(_MAX_DELIVERY_COUNT)("maxDeliveryCount", most)
    }


def _checked_spec(given: str) -> str:
    try:
        spec = QueueSpec.from_json(given)
        (publisher_of(spec) if spec.kind == "stream" else open_spec(spec)).spec()
        return given
    except ConfigurationError:
        raise
    except (ValueError, TypeError, AttributeError):  # its text may quote a secret
        raise ConfigurationError(
            "option spec is no queue spec; write .options(**sluicegate.spark.options(queue))"
        ) from None
