"""Make queues and clients for an Airflow connection."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from airflow.sdk import BaseHook

from airflow_provider_sluicegate import compat
from airflow_provider_sluicegate.connection import connection_url, secrets_in
from airflow_provider_sluicegate.lineage import namespace_of, reporting
from airflow_provider_sluicegate.loading import import_async
from airflow_provider_sluicegate.places import named_place
from airflow_provider_sluicegate.tracing import afollow_airflow, follow_airflow

if TYPE_CHECKING:
    import redis
    from airflow.sdk import Connection

    from sluicegate import RedisGateway, RedisMessageQueue
    from sluicegate.asyncio import RedisMessageQueue as AsyncRedisMessageQueue
    from sluicegate.consumer import QueueConsumer
    from sluicegate.jobs import RedisJobQueue
    from sluicegate.options import QueueOptions
    from sluicegate.place import Place
    from sluicegate.streams import ConsumerGroup, RedisStreamQueue

__all__ = ["RedisQueueHook"]

_PLACE = ("client", "url", "gateway")


class Closable(Protocol):
    """Declares what the hook does with what it opened."""

    def close(self) -> None: ...


class AsyncClosable(Protocol):
    """Declares the same for asyncio."""

    async def aclose(self) -> None: ...


class RedisQueueHook(BaseHook):
    """
    Makes Sluicegate queues, streams and groups on the Redis of an Airflow connection.

    Making a hook, or a queue with it, contacts nothing: the hook looks the connection up at its first use and contacts
    Redis at the first command. The hook keeps what it made; :meth:`close`, or leaving a ``with`` block, closes it. On
    an event loop, as in a trigger, use :meth:`aget_queue` and ``async with``, or :meth:`aclose`.

    **Delivery semantics.** Delivery is at least once, as for every queue. A publish refuses duplicates of a
    deduplication key within its window; a claim leases messages, and unacked messages are delivered again.

    **Passwords.** The password is either in the connection's password field, or outside Airflow: ``auth_env`` in the
    extra names an environment variable that holds it. A queue with a password from the field works only where
    Airflow resolves connections: its ``spec()``, which is serialized for Spark executors and triggers, is refused,
    because it would contain the password. A queue with a password from the environment can be serialized: set the
    variable for the Airflow workers and for the executors, for instance with ``spark.executorEnv.NAME``. Neither kind
    shows the password in a log, a repr, an XCom or a rendered template.

    :param redis_conn_id: a connection of type ``sluicegate`` or ``redis``. The fields are host, port, login and
        password; the extra takes ``db``, ``ssl`` with ``ssl_cert_reqs``, ``ssl_ca_certs``, ``ssl_certfile``,
        ``ssl_keyfile`` and ``ssl_check_hostname``, ``auth_env`` (``password_env`` is its old name),
        ``sentinel_service`` with ``sentinel_login`` and ``sentinel_auth_env``, ``cluster``, ``scheme``, and ``url``
        instead of all those that say where Redis is, for instance ``embedded:///absolute/folder``.
    """

    conn_name_attr = "redis_conn_id"
    default_conn_name = "sluicegate_default"
    conn_type = "sluicegate"
    hook_name = "Sluicegate"

    def __init__(self, redis_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.redis_conn_id = redis_conn_id
        # Strong references: closing a queue releases its leases, also after the caller has dropped the queue.
        self._queues: list[Closable] = []
        self._async_queues: list[AsyncClosable] = []

    @classmethod
    def get_connection_form_widgets(cls) -> dict[str, Any]:
        """Return the fields of the connection form to Airflow 3.1; later versions read the provider's metadata."""
        from airflow_provider_sluicegate.connection_form import form_fields

        return form_fields()

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Return what the form does with the standard fields; see :meth:`get_connection_form_widgets`."""
        from airflow_provider_sluicegate.connection_form import field_behaviour

        return field_behaviour()

    def get_conn(self) -> redis.Redis | redis.RedisCluster:
        """Return a client, the same one each time; it connects at its first command."""
        return self._gateway.client

    def get_queue(self, name: str, **queue_options: Unpack[QueueOptions]) -> RedisMessageQueue:
        """
        Return a queue on this connection; it connects at its first command.

        :param name: the name of the queue.
        :param queue_options: options of :class:`sluicegate.RedisMessageQueue`, except ``client``, ``url`` and
            ``gateway``, which the connection determines.
        :raises ConfigurationError: the connection or an option cannot work as given.
        :raises AirflowNotFoundException: there is no such connection.
        """
        queue: RedisMessageQueue = self.open_place(named_place(name), **queue_options)
        return queue

    def get_stream(self, name: str, **stream_options: Any) -> RedisStreamQueue:
        """
        Return a stream on this connection, to publish to it; it connects at its first command.

        :param name: the name of the stream.
        :param stream_options: options of :class:`sluicegate.streams.RedisStreamQueue`.
        """
        from sluicegate.place import Place

        stream: RedisStreamQueue = self.open_place(Place(name, stream=True), **stream_options)
        return stream

    def get_group(self, stream: str, group: str, **group_options: Any) -> ConsumerGroup:
        """
        Return a group of a stream, to claim from it; it connects at its first command.

        :param stream: the name of the stream.
        :param group: the name of the group.
        :param group_options: options of ``stream.group``. Give ``start``, such as ``"beginning"`` or ``"end"``, for a
            group that is made at its first use; without it the group must exist.
        """
        from sluicegate.place import Place

        opened: ConsumerGroup = self.open_place(Place(stream, stream=True, group=group), **group_options)
        return opened

    def get_jobs(self, name: str, **job_options: Any) -> RedisJobQueue:
        """
        Return a queue of jobs on this connection; it connects at its first command.

        :param name: the name of the queue.
        :param job_options: options of :class:`sluicegate.jobs.RedisJobQueue`.
        """
        from sluicegate.jobs import RedisJobQueue
        from sluicegate.place import Place

        self._refuse_place(job_options)
        follow_airflow()
        queue = RedisJobQueue(name, url=self._url, **self._reporting(Place(name), job_options))
        self._queues.append(queue)
        return queue

    def open_place(self, place: Place, **options: Any) -> Any:
        """
        Return what a place names: a queue, a stream or a group of a stream; see :meth:`get_queue`.

        :param place: such as ``Place("orders", stream=True, group="billing")``.
        :param options: of what the place names.
        """
        from sluicegate.opening import open_place

        self._refuse_place(options)
        follow_airflow()
        opened = open_place(place, url=self._url, **self._reporting(place, options))
        self._queues.append(opened)
        return opened

    async def aget_queue(self, name: str, **queue_options: Unpack[QueueOptions]) -> AsyncRedisMessageQueue:
        """
        Return a queue for asyncio on this connection; it connects at its first command.

        The parameters and errors are those of :meth:`get_queue`. ``aopen_place(place)`` returns a stream or a group.
        """
        queue: AsyncRedisMessageQueue = await self.aopen_place(named_place(name), **queue_options)
        return queue

    async def aopen_place(self, place: Place, **options: Any) -> Any:
        """Return what a place names, for asyncio; see :meth:`open_place`."""
        self._refuse_place(options)
        await afollow_airflow()
        library = await import_async("sluicegate.asyncio.opening")
        opened = library.open_place(place, url=await self.aconnection_url(), **self._reporting(place, options))
        self._async_queues.append(opened)
        return opened

    def connection_url(self) -> str:
        """
        Return the URL of the connection.

        A literal password is part of it, and masked in logs from now on; do not store or render the URL.
        """
        return self._url

    async def aconnection_url(self) -> str:
        """
        Return the URL of the connection, looked up without blocking the event loop.

        A literal password is part of it, and masked in logs from now on; do not store or render the URL.
        """
        if "_url" not in self.__dict__:
            try:
                connection = await compat.get_async_connection(type(self), self.redis_conn_id)
            except compat.AirflowNotFoundException as error:
                raise self._missing() from error
            url = connection_url(connection)
            for secret in secrets_in(url):
                await compat.amask_secret(secret)
            self.__dict__["_url"] = url
        return self._url

    def check_serializable(self, queue: QueueConsumer) -> None:
        """
        Refuse a queue of this hook that other processes, such as Spark executors, cannot make from its spec.

        :param queue: from :meth:`get_queue` or :meth:`open_place`.
        :raises ConfigurationError: the connection holds its password, or an option cannot be serialized.
        """
        from sluicegate.errors import ConfigurationError

        if secrets_in(self._url):
            raise ConfigurationError(
                f"connection {self.redis_conn_id!r} holds its password, which must not be sent to other processes; "
                "leave the password field empty, set auth_env in the extra to the name of an environment variable, and "
                "set that variable for the Airflow workers and for the executors (spark.executorEnv.NAME)"
            )
        queue.spec()

    def get_openlineage_namespace(self) -> str:
        """Return the name of this Redis in OpenLineage, such as ``redis://cache:6379``; it holds no credentials."""
        return namespace_of(self._url)

    def test_connection(self) -> tuple[bool, str]:
        """
        Check the connection by reading the depth of a queue that does not exist, and describe the server.

        That needs what every queue needs: the server, the credentials, and the right to run scripts. Nothing is
        written. The sentence holds the server's version, its role, the topology, persistence and, if it is not
        ``noeviction``, a warning about the eviction policy.

        :return: whether it works, and a sentence about it without secrets.
        """
        from airflow_provider_sluicegate.connection_report import try_connection

        return try_connection(self)

    def close(self) -> None:
        """Close the queues and the client that this hook made; the queues release the leases that they still hold."""
        for queue in self._queues:
            queue.close()
        self._queues.clear()
        if "_gateway" in self.__dict__:
            self._gateway.close()
            del self._gateway

    async def aclose(self) -> None:
        """Close the queues for asyncio that this hook made, on their event loop; see :meth:`close`."""
        for queue in self._async_queues:
            await queue.aclose()
        self._async_queues.clear()

    def __enter__(self) -> RedisQueueHook:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> RedisQueueHook:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def _refuse_place(self, queue_options: Mapping[str, Any]) -> None:
        from sluicegate.errors import ConfigurationError

        for option in _PLACE:
            if option in queue_options:
                raise ConfigurationError(
                    f"{option} is not an option here: connection {self.redis_conn_id!r} says where Redis is"
                )

    def _reporting(self, place: Place, queue_options: dict[str, Any]) -> dict[str, Any]:
        """Return the options of a queue that Airflow's lineage learns of."""
        on_event = reporting(self, place, queue_options.get("on_event"))
        return queue_options if on_event is None else {**queue_options, "on_event": on_event}

    def _missing(self) -> Exception:
        name = self.redis_conn_id
        return compat.AirflowNotFoundException(
            f"there is no connection {name!r}; add it, for instance with: airflow connections add {name} "
            "--conn-type sluicegate --conn-host localhost"
        )

    @cached_property
    def _gateway(self) -> RedisGateway:
        from sluicegate import RedisGateway

        return RedisGateway(url=self._url)

    @cached_property
    def _url(self) -> str:
        from airflow.sdk.log import mask_secret

        try:
            connection: Connection = self.get_connection(self.redis_conn_id)
        except compat.AirflowNotFoundException as error:
            raise self._missing() from error
        url = connection_url(connection)
        # Airflow masks the password field by itself, but not a password in a url of the extra.
        for secret in secrets_in(url):
            mask_secret(secret)
        return url
