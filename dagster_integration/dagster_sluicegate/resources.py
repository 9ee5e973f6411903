"""The queue as a Dagster resource."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Unpack
from urllib.parse import urlsplit

import dagster as dg
from pydantic import ConfigDict, Field, PrivateAttr

from dagster_sluicegate.compat import show_markdown
from dagster_sluicegate.names import NO_NAMES, Names
from dagster_sluicegate.place_options import STREAM_FIELDS, check_stream_fields, options_of, unfit_fields
from dagster_sluicegate.places import consumed, page_link
from dagster_sluicegate.urls import (
    has_password,
    holds,
    impatient_url,
    is_variable,
    refuse_plain_password,
    split_url,
)
from sluicegate import Depth, RedisMessageQueue
from sluicegate import asyncio as queues
from sluicegate.config import OPTIONS_ELSEWHERE, QueueConfig
from sluicegate.consumer import QueueConsumer
from sluicegate.core.deduplication import DeduplicationPolicy
from sluicegate.errors import ConfigurationError
from sluicegate.opening import open_place
from sluicegate.options import OPTIONS, OnError, OverloadPolicy, QueueOptions
from sluicegate.place import Place
from sluicegate.signatures import refuse_unknown_options
from sluicegate.streams import ConsumerGroup, RedisStreamQueue

if TYPE_CHECKING:
    from sluicegate.jobs import RedisJobQueue

__all__ = ["RedisQueueResource"]

_PLACES = ("url", "client", "gateway")
# Options of a queue that are those of a kind of job, under its names.
_OF_A_KIND = {"visibility_timeout_seconds": "visibility_timeout_seconds", "max_delivery_count": "max_attempts"}
# What a field of config cannot hold, and where it goes instead.
_NOT_CONFIG = {
    **dict.fromkeys(OPTIONS, "it is no plain value; give it to get_queue() or get_async_queue()"),
    "get_deduplication_key": "a field or a template is deduplication_key here; a function goes to get_queue()",
    "deduplication": "leave it out: deduplication is on when deduplication_key is set",
    "name": "its name is queue_name",
    **{name: reason for name, reason in OPTIONS_ELSEWHERE.items() if name != "redis_client"},
    **dict.fromkeys(("redis_client", "client", "gateway"), "give url"),
}


def _declared(name: str) -> Any:
    """Return the field of an option, with the default and the words of its declaration."""
    option = OPTIONS[name]
    unit = f" (in {option.unit})" if option.unit else ""
    summary = option.summary[0].upper() + option.summary[1:]
    return Field(default=option.default, description=f"{summary}. It takes {option.rule}{unit}.")


class RedisQueueResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """A Sluicegate queue on Redis.

    It has no life cycle of its own: nothing connects before `get_queue` or another method is used, and nothing is
    settled when a run or a tick ends, because Dagster does not report to a resource whether the step succeeded.

    A password never belongs in `url` as plain text, since Dagster's UI shows the values of resources: such a resource
    is refused when it becomes part of `Definitions`. Give the whole URL by `dg.EnvVar`, or name the variable of the
    password in the URL (`?password_env=NAME`); the second form can also be sent to Spark executors
    (`queue.spec()`). A resource that is configured at launch refuses a password that the run config holds as text.

    The fields are the options of a queue that are plain values. Options that are functions or objects, such as
    `on_event`, go to `get_queue`. Options that cannot work are refused when the resource becomes part of `Definitions`.

    Example:
        .. code-block:: python

            import dagster as dg
            from dagster_sluicegate import RedisQueueResource


            @dg.asset
            def orders(queue: RedisQueueResource) -> dg.MaterializeResult:
                with queue.get_queue() as orders:
                    report = orders.publish_many({"order_id": n} for n in range(1000))
                return dg.MaterializeResult(metadata={"accepted": report.accepted, "duplicates": report.duplicates})


            defs = dg.Definitions(
                assets=[orders],
                resources={
                    "queue": RedisQueueResource(
                        url=dg.EnvVar("REDIS_URL"), queue_name="orders", deduplication_key="order_id"
                    )
                },
            )
    """

    # An error of pydantic would show the values, and one of them is the URL.
    model_config: ClassVar[ConfigDict] = ConfigDict(hide_input_in_errors=True)

    url: str = Field(
        repr=False,
        description=(
            "Where Redis is: redis://, rediss://, unix://, redis+sentinel://, redis+cluster:// or embedded:///folder. "
            "A URL with a password goes in by dg.EnvVar; or leave the password out and name its environment variable "
            "with ?password_env=NAME. A URL such as redis+sluicegate://host:6379/0?stream=orders&group=billing names "
            "the queue, or the stream and group, too."
        ),
    )
    queue_name: str | None = Field(
        default=None,
        description=(
            "Name of the queue; any text with a visible character in it. It may be left out where every use names a "
            'queue, as get_queue("orders") does; sensors and assets built by this library need it.'
        ),
    )
    stream_name: str | None = Field(
        default=None, description="Name of a stream, instead of a queue. Give this or queue_name, not both."
    )
    group: str | None = Field(
        default=None,
        description=(
            "Name of the group of the stream from which sensors, checks and drains consume; assets that publish need "
            "none."
        ),
    )
    start: str | None = Field(
        default=None,
        description=(
            "Where a group that does not exist yet begins, which its first use creates: beginning, end, or the id of a "
            "message. None: a group that does not exist is an error."
        ),
    )
    max_length: int | None = Field(
        default=None,
        description=(
            "Of a stream: messages that stay for a replay. A publish removes older ones that every group has finished. "
            "None: no limit."
        ),
    )
    max_age_seconds: float | None = Field(
        default=None, description="Of a stream: age up to which messages stay for a replay, in seconds. None: no limit."
    )
    trim_unfinished: bool = Field(
        default=False,
        description="Of a stream: remove messages beyond these limits even if a group has not finished them.",
    )
    page_url: str | None = Field(
        default=None,
        description=(
            "Where the web page of Sluicegate is, such as https://queues.example.com/. Observations, checks, drains "
            "and publishes then link to it in the metadata sluicegate/page, and sensors in a tag of the runs that they "
            "request. None: no links."
        ),
    )
    deduplication_key: str | None = Field(
        default=None,
        description=(
            "Refuse messages whose key was published before: a field of the payload, or a template such as "
            '"{tenant}:{order_id}". None: no deduplication.'
        ),
    )
    deduplication_policy: DeduplicationPolicy = _declared("deduplication_policy")
    deduplication_window_seconds: float = _declared("deduplication_window_seconds")
    visibility_timeout_seconds: float | None = _declared("visibility_timeout_seconds")
    heartbeat_interval_seconds: float | None = _declared("heartbeat_interval_seconds")
    max_delivery_count: int | None = _declared("max_delivery_count")
    max_lease_seconds: float | None = _declared("max_lease_seconds")
    on_error: OnError = _declared("on_error")
    max_pending_length: int | None = _declared("max_pending_length")
    pending_overload_policy: OverloadPolicy = _declared("pending_overload_policy")
    pending_overload_block_timeout_seconds: float = _declared("pending_overload_block_timeout_seconds")
    enable_completed_queue: bool = _declared("enable_completed_queue")
    max_completed_length: int | None = _declared("max_completed_length")
    enable_failed_queue: bool = _declared("enable_failed_queue")
    max_failed_length: int | None = _declared("max_failed_length")
    max_dead_length: int | None = _declared("max_dead_length")
    strict_payload_types: bool = _declared("strict_payload_types")
    max_payload_bytes: int | None = _declared("max_payload_bytes")
    max_payload_depth: int | None = _declared("max_payload_depth")
    sort_keys: bool = _declared("sort_keys")
    json_default: str | None = _declared("json_default")
    strict_envelope_decoding: bool = _declared("strict_envelope_decoding")
    require_noeviction: bool = _declared("require_noeviction")
    message_wait_interval_seconds: float = _declared("message_wait_interval_seconds")
    retry_budget_seconds: float = _declared("retry_budget_seconds")
    retry_initial_delay_seconds: float = _declared("retry_initial_delay_seconds")
    retry_max_delay_seconds: float = _declared("retry_max_delay_seconds")

    _is_resolved: bool = PrivateAttr(default=False)

    if not TYPE_CHECKING:  # a checker takes the signature from the fields

        def __init__(self, **values: Any) -> None:
            refuse_unknown_options(type(self).__name__, values, type(self).model_fields, _NOT_CONFIG)
            super().__init__(**values)

    @classmethod
    def configure_at_launch(cls, **kwargs: Any) -> Any:
        """Return a resource whose other fields the run config gives; those given here are its defaults.

        Raises:
            ConfigurationError: a field is unknown, or `url` is plain text with a password in it.
        """
        refuse_unknown_options(f"{cls.__name__}.configure_at_launch", kwargs, cls.model_fields, _NOT_CONFIG)
        refuse_plain_password(kwargs.get("url"), "a queue resource")
        return super().configure_at_launch(**kwargs)

    @contextmanager
    def get_queue(self, name: str | None = None, **options: Unpack[QueueOptions]) -> Iterator[RedisMessageQueue]:
        """Yield the queue; it is closed at the end of the block, which releases what the block still holds.

        Args:
            name: of another queue on the same server; default: `queue_name`.
            options: of `sluicegate.RedisMessageQueue`; they override those of the resource. A key function is
                `get_deduplication_key`.

        Raises:
            ConfigurationError: an option that is unknown or cannot work, no queue is named, or the password's variable
                is not set.
            RedisUnavailableError: Redis cannot be reached; names host and port.
        """
        place = self._queue_place(name)
        given = self._options(place, options, "get_queue")
        with RedisMessageQueue(place.name, url=self.server_url, **given) as queue:
            yield queue

    @asynccontextmanager
    async def get_async_queue(
        self, name: str | None = None, **options: Unpack[QueueOptions]
    ) -> AsyncIterator[queues.RedisMessageQueue]:
        """Yield a `sluicegate.asyncio.RedisMessageQueue`, for `async def` assets and ops; see `get_queue`."""
        place = self._queue_place(name)
        given = self._options(place, options, "get_queue")
        async with queues.RedisMessageQueue(place.name, url=self.server_url, **given) as queue:
            yield queue

    @contextmanager
    def get_consumer(
        self, queue_name: str | None = None, *, stream_name: str | None = None, group: str | None = None, **options: Any
    ) -> Iterator[QueueConsumer]:
        """Yield the queue or the group from which messages are claimed, whichever is named; see `get_queue`.

        Args:
            queue_name: of another queue on the same server.
            stream_name: of another stream on the same server.
            group: of another group; default: the resource's.
            options: of the queue or the group; they override those of the resource.

        Raises:
            ConfigurationError: a stream is named, and no group of it; or as `get_queue` does.
            RedisUnavailableError: Redis cannot be reached; names host and port.
        """
        place = self.resolve_consumed(Names(queue_name, stream_name, group))
        given = self._options(place, options, "get_consumer")
        with open_place(place, url=self.server_url, **given) as consumer:
            yield consumer

    @contextmanager
    def get_stream(self, name: str | None = None, **options: Any) -> Iterator[RedisStreamQueue]:
        """Yield the stream, to publish to it, to look at its groups or to replay; see `get_queue`.

        Args:
            name: of another stream on the same server; default: `stream_name`.
            options: of `sluicegate.streams.RedisStreamQueue`; they override those of the resource.

        Raises:
            ConfigurationError: as `get_queue` does.
            RedisUnavailableError: Redis cannot be reached; names host and port.
        """
        place = self._stream_place(name)
        with RedisStreamQueue(place.name, url=self.server_url, **self._options(place, options, "get_stream")) as stream:
            yield stream

    @contextmanager
    def get_group(
        self, name: str | None = None, *, stream_name: str | None = None, **options: Any
    ) -> Iterator[ConsumerGroup]:
        """Yield the group of the stream, to claim from it; see `get_queue`.

        Args:
            name: of another group; default: `group`.
            stream_name: of another stream on the same server; default: the resource's.
            options: of `sluicegate.streams.ConsumerGroup`; they override those of the resource.

        Raises:
            ConfigurationError: as `get_queue` does.
            RedisUnavailableError: Redis cannot be reached; names host and port.
        """
        place = self.resolve_consumed(Names(stream_name=self._stream_place(stream_name).name, group=name))
        given = self._options(place, options, "get_group")
        with ConsumerGroup(place.name, str(place.group), url=self.server_url, **given) as group:
            yield group

    @contextmanager
    def get_jobs(self, name: str | None = None, **options: Any) -> Iterator[RedisJobQueue]:
        """Yield a queue of jobs, to enqueue, to wait for results or to work on them; see `get_queue`.

        Args:
            name: of another queue on the same server; default: `queue_name`.
            options: of `sluicegate.jobs.RedisJobQueue`, such as `kinds`; they override those of the resource.

        Raises:
            ConfigurationError: as `get_queue` does.
            RedisUnavailableError: Redis cannot be reached; names host and port.
        """
        from sluicegate.jobs import RedisJobQueue

        place = self._queue_place(name)
        with RedisJobQueue(place.name, url=self.server_url, **self._job_options(options)) as jobs:
            yield jobs

    @contextmanager
    def get_publisher(
        self, queue_name: str | None = None, *, stream_name: str | None = None, **options: Any
    ) -> Iterator[Any]:
        """Yield the queue or the stream to which messages are published, whichever is named; see `get_queue`.

        A group that the resource names is of no account here.

        Args:
            queue_name: of another queue on the same server.
            stream_name: of another stream on the same server.
            options: of the queue or the stream; they override those of the resource.

        Raises:
            ConfigurationError: as `get_queue` does.
            RedisUnavailableError: Redis cannot be reached; names host and port.
        """
        place = self.resolve_place(Names(queue_name, stream_name))
        place = Place(place.name, stream=place.stream)
        given = self._options(place, options, "get_publisher")
        with open_place(place, url=self.server_url, **given) as publisher:
            yield publisher

    def get_depth(self, name: str | None = None, *, stream_name: str | None = None, group: str | None = None) -> Depth:
        """Count the messages of a queue or a group: read-only, without retries, for sensors and checks.

        A server that does not answer costs a few seconds (4 s for each of connecting and reading, unless the URL sets
        `socket_connect_timeout` and `socket_timeout`), so that one tick cannot hold up the others.

        Args:
            name: of another queue on the same server; default: `queue_name`.
            stream_name: of another stream on the same server.
            group: of another group; default: the resource's.

        Raises:
            ConfigurationError: an option that cannot work, no queue is named, or the password's variable is not set.
            RedisUnavailableError: Redis cannot be reached; names host and port.
        """
        return self.read_depth(self.resolve_consumed(Names(name, stream_name, group)))

    def read_depth(self, place: Place) -> Depth:
        """Count the messages of a place on the resource's server; see `get_depth`."""
        options = self._options(place, {"retry_budget_seconds": 0}, "get_depth")
        with open_place(place, url=impatient_url(self.server_url), **options) as consumer:
            depth: Depth = consumer.depth()
            return depth

    def page_metadata(self, place: Place) -> dict[str, dg.UrlMetadataValue]:
        """Return the link to a place on the web page as metadata `sluicegate/page`; empty without a `page_url`."""
        return {name: dg.MetadataValue.url(link) for name, link in self.page_tags(place).items()}

    def page_tags(self, place: Place) -> dict[str, str]:
        """Return the same as tags of a run."""
        return {} if self.page_url is None else {"sluicegate/page": page_link(self.page_url, place)}

    @property
    def server_url(self) -> str:
        """Return the URL of the Redis, without the names of a queue, stream or group."""
        return split_url(self.url)[0]

    def resolve_name(self, name: str | None = None) -> str:
        """Return the name of the queue that a use means: the one that it names, or `queue_name`.

        Raises:
            ConfigurationError: neither is given, or the resource names a stream.
        """
        return self._queue_place(name).name

    def resolve_place(self, names: Names = NO_NAMES) -> Place:
        """Return the queue, stream or group that a use means: what it names, and the resource's names for the rest.

        Raises:
            ConfigurationError: neither names one, or the resource's names contradict each other.
        """
        return names.over(self.names).place()

    def resolve_consumed(self, names: Names = NO_NAMES) -> Place:
        """Return the queue or the group from which a use consumes; see `resolve_place`.

        Raises:
            ConfigurationError: it is a stream without a group.
        """
        return consumed(self.resolve_place(names))

    def get_resource_definition(self) -> Any:
        """Refuse a literal password, and options that cannot work, where Dagster takes the values that its UI shows.

        The values that Dagster resolves for a run or a tick are not checked here, so that a URL out of `dg.EnvVar` may
        have a password.

        Raises:
            ConfigurationError: `url` is plain text with a password in it, or an option cannot work.
        """
        if not self._is_resolved:  # a resource that is nested in another one comes by here again in a run
            refuse_plain_password(self.url, self._described)
            self._check_options()
        show_markdown(self)
        return super().get_resource_definition()

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Refuse a password that the run config holds as text; Dagster stores and shows that.

        Raises:
            ConfigurationError: names the resource's queue.
        """
        self._is_resolved = True
        run = context.run
        if run is None or not has_password(self.url):
            return
        if holds(run.run_config.get("resources"), self.url):
            raise ConfigurationError(
                f"the run config gives the url of {self._described} with a password as plain text, which Dagster "
                'stores and shows; give url: {"env": "REDIS_URL"} there, and replace the password, which stands in the '
                "run's config now"
            )

    @property
    def names(self) -> Names:
        """Return the names that the fields or the URL give.

        Raises:
            ConfigurationError: both do, or they name both a queue and a stream.
        """
        given = Names(self.queue_name, self.stream_name, self.group)
        place = None if is_variable(self.url) else split_url(self.url)[1]
        if place is None:
            return given
        if given:
            raise ConfigurationError(f"the url names {place}; leave queue_name, stream_name and group out")
        return Names(stream_name=place.name, group=place.group) if place.stream else Names(place.name)

    @property
    def _described(self) -> str:
        return self.names.in_words.removeprefix("the ") or "a queue resource"

    def _stream_place(self, name: str | None) -> Place:
        place = self.resolve_place(Names(stream_name=name))
        if not place.stream:
            raise ConfigurationError(
                f"the resource names {place}, which is no stream; set its stream_name, or name a stream where it is "
                'used, as get_stream("orders") does'
            )
        return Place(place.name, stream=True)

    def _queue_place(self, name: str | None) -> Place:
        place = self.resolve_place(Names(name))
        if place.stream:
            raise ConfigurationError(
                f"the resource names {place}, which is no queue; use get_consumer() to claim and get_stream() to "
                'publish, or name a queue, as get_queue("orders") does'
            )
        return place

    def _configured(self, known: Collection[str] = OPTIONS.keys()) -> dict[str, Any]:
        """Return the options that the fields hold, by their names in the core.

        Args:
            known: names of the options that there are.
        """
        fields = (*OPTIONS, *STREAM_FIELDS)
        held = {name: getattr(self, name) for name in fields if name in RedisQueueResource.model_fields}
        held["get_deduplication_key"] = self.deduplication_key
        return {name: value for name, value in held.items() if name in known}

    def _options(self, place: Place, overriding: Mapping[str, Any], method: str) -> dict[str, Any]:
        """Return the options of a place: those of the resource that it has, and those of a use."""
        if given := sorted(set(_PLACES) & set(overriding)):
            raise ConfigurationError(
                f"{given[0]} is no option of a queue here: the resource says where Redis is; make another resource"
            )
        known = options_of(place)
        refuse_unknown_options(method, overriding, known, OPTIONS_ELSEWHERE)
        return {**self._configured(known), **overriding}

    def _check_options(self) -> None:
        """Check what is known before a run: each value that no variable holds, and all together if none does."""
        fields = RedisQueueResource.model_fields
        for name, hint in unfit_fields(self.names).items():
            if name in fields and getattr(self, name) != fields[name].default:
                raise ConfigurationError(f"{self._described}: {name} {hint}")
        self._check_page_url()
        options = self._configured()
        known = {name: value for name, value in options.items() if not is_variable(value)}
        if len(known) == len(options):
            QueueConfig(**options)
        for name, value in known.items():
            OPTIONS[name].check(name, value)
        check_stream_fields({name: getattr(self, name) for name in STREAM_FIELDS})

    def _check_page_url(self) -> None:
        """Refuse what no browser would open as a page, and a password in it, which the UI would show."""
        if self.page_url is None or is_variable(self.page_url):
            return
        if not self.page_url.startswith(("https://", "http://")):
            raise ConfigurationError(
                f"{self._described}: page_url is no http:// or https:// URL; give the one of the web page"
            )
        if urlsplit(self.page_url).password is not None:
            raise ConfigurationError(
                f"{self._described}: page_url has a password, which Dagster's UI would show; leave it out"
            )

    def _job_options(self, overriding: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a queue of jobs, where those of a delivery are options of a kind of job."""
        from sluicegate.jobs import JobKind

        fields = type(self).model_fields
        kind = {
            option: getattr(self, name)
            for name, option in _OF_A_KIND.items()
            if getattr(self, name) != fields[name].default
        }
        own = {name: value for name, value in self._configured().items() if name not in _OF_A_KIND}
        return {**own, "default_kind": JobKind(**kind), **overriding}
