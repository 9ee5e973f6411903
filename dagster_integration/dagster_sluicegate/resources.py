"""The queue as a Dagster resource."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import dagster as dg
from pydantic import Field

from sluicegate import Depth, RedisMessageQueue
from sluicegate._redis.connection import Address
from sluicegate.errors import ConfigurationError

__all__ = ["RedisQueueResource", "queue_resource", "takes_resource"]

_LOOK_SECONDS = 4.0


class RedisQueueResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """A Sluicegate queue on Redis.

    It has no life cycle of its own: nothing connects before `get_queue` or `get_depth` is used, and nothing is settled
    when a run or a tick ends, because Dagster does not tell a resource whether the step succeeded.

    A password never belongs in `url` as plain text, since Dagster's UI shows the values of resources: such a resource
    is refused when it becomes part of `Definitions`. Give the whole URL by `dg.EnvVar`, or name the variable of the
    password in the URL (`?password_env=NAME`); the second form can also be sent to Spark executors
    (`queue.spec()`).

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

    url: str = Field(
        repr=False,
        description=(
            "Where Redis is: redis://, rediss://, unix:// or embedded:///folder. A URL with a password goes in by "
            "dg.EnvVar; or leave the password out and name its environment variable with ?password_env=NAME."
        ),
    )
    queue_name: str = Field(description="Name of the queue; any text with a visible character in it.")
    deduplication_key: str | None = Field(
        default=None,
        description=(
            "Refuse messages whose key was published before: a field of the payload, or a template such as "
            '"{tenant}:{order_id}". None: no deduplication.'
        ),
    )
    deduplication_window_seconds: float = Field(
        default=3600, description="How long a deduplication key refuses further messages, from the publish."
    )
    visibility_timeout_seconds: float = Field(
        default=300,
        description="Life of a lease without a heartbeat: how long after a crash its messages come back.",
    )
    max_delivery_count: int | None = Field(
        default=10,
        description="Deliveries after which a message becomes a dead letter, crashes and errors counted; None: no cap.",
    )
    retry_budget_seconds: float = Field(
        default=120,
        description="How long a call is retried when Redis goes away in the middle of a run; 0: not at all.",
    )

    @contextmanager
    def get_queue(self) -> Iterator[RedisMessageQueue]:
        """Yield the queue; it is closed at the end of the block, which releases what the block still holds.

        Raises:
            ConfigurationError: an option that cannot work, or the password's variable is not set.
            RedisUnavailableError: Redis cannot be reached; names host and port.
        """
        queue = self._queue(self.url, self.retry_budget_seconds)
        try:
            yield queue
        finally:
            queue.close()

    def get_depth(self) -> Depth:
        """Count the queue's messages: read-only, without retries, for sensors and checks.

        A server that does not answer costs a few seconds (4 s for each of connecting and reading, unless the URL sets
        `socket_connect_timeout` and `socket_timeout`), so that one tick cannot hold up the others.

        Raises:
            ConfigurationError: an option that cannot work, or the password's variable is not set.
            RedisUnavailableError: Redis cannot be reached; names host and port.
        """
        queue = self._queue(_impatient(self.url), 0)
        try:
            return queue.depth()
        finally:
            queue.close()

    def get_resource_definition(self) -> Any:
        """Refuse a literal password at the point where Dagster takes the values that its UI shows.

        The values that Dagster resolves for a run or a tick do not come by here, so that a URL out of `dg.EnvVar` may
        have one.

        Raises:
            ConfigurationError: `url` is plain text with a password in it.
        """
        if not isinstance(self.url, dg.EnvVar) and Address.parse(self.url).password is not None:
            raise ConfigurationError(
                f"the url of queue {self.queue_name!r} carries a password as plain text, which the UI would show; "
                'write url=dg.EnvVar("REDIS_URL"), or redis://user@host:6379/0?password_env=NAME'
            )
        return super().get_resource_definition()

    def _queue(self, url: str, retry_budget_seconds: float) -> RedisMessageQueue:
        return RedisMessageQueue(
            self.queue_name,
            url=url,
            get_deduplication_key=self.deduplication_key,
            deduplication_window_seconds=self.deduplication_window_seconds,
            visibility_timeout_seconds=self.visibility_timeout_seconds,
            max_delivery_count=self.max_delivery_count,
            retry_budget_seconds=retry_budget_seconds,
        )


def takes_resource(key: str, function: Callable[..., Any], context: type) -> Callable[..., Any]:
    """Return a function whose signature names the queue resource, so that a test may call the definition with it.

    Args:
        key: of the resource, a Python identifier.
        function: takes the context and the resource.
        context: the class of the context.
    """
    if not key.isidentifier():
        raise ConfigurationError(f"resource_key must be a Python identifier, not {key!r}")

    @functools.wraps(function)
    def named(context: Any, **resources: Any) -> Any:
        return function(context, _checked(resources[key], key))

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [
        inspect.Parameter("context", kind, annotation=context),
        inspect.Parameter(key, kind, annotation=RedisQueueResource),
    ]
    del named.__wrapped__  # its annotations would be taken instead
    named.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    named.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return named


def queue_resource(resources: object, key: str) -> RedisQueueResource:
    """Return the queue resource of a context.

    Raises:
        ConfigurationError: something else is there under this key.
    """
    return _checked(getattr(resources, key), key)


def _checked(found: object, key: str) -> RedisQueueResource:
    if not isinstance(found, RedisQueueResource):
        raise ConfigurationError(
            f"the resource {key!r} is a {type(found).__name__}; put a RedisQueueResource there, or name another key "
            "with resource_key"
        )
    return found


def _impatient(url: str) -> str:
    """Return the URL with short timeouts, unless it has its own."""
    parts = urlsplit(url)
    if parts.scheme == "embedded":  # a local socket; it starts within half a second or says why not
        return url
    given = parse_qs(parts.query)
    missing = {name: _LOOK_SECONDS for name in ("socket_connect_timeout", "socket_timeout") if name not in given}
    if not missing:
        return url
    return f"{url}{'&' if parts.query else '?'}{urlencode(missing)}"
