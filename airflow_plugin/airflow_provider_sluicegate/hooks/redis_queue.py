"""Make queues and clients for an Airflow connection."""

from __future__ import annotations

from functools import cached_property
from types import TracebackType
from typing import Any, Unpack
from urllib.parse import parse_qs, unquote, urlsplit

import redis
from airflow.sdk import BaseHook
from airflow.sdk.log import mask_secret

from airflow_provider_sluicegate.connection import connection_url
from sluicegate import RedisGateway, RedisMessageQueue
from sluicegate.errors import ConfigurationError, RedisMessageQueueError
from sluicegate.options import QueueOptions

__all__ = ["RedisQueueHook"]

_PLACE = ("client", "url", "gateway")


class RedisQueueHook(BaseHook):
    """
    Makes Sluicegate queues on the Redis of an Airflow connection.

    Making a hook, or a queue with it, contacts nothing: the hook looks the connection up at its first use and contacts
    Redis at the first command. The hook keeps what it made; :meth:`close`, or leaving a ``with`` block, closes it.

    **Delivery semantics.** Delivery is at least once, as for every queue. A publish refuses duplicates of a
    deduplication key within its window; a claim leases messages, and unacked messages are delivered again.

    **Passwords.** The password is either in the connection's password field, or outside Airflow: ``password_env`` in
    the extra names an environment variable that holds it. A queue with a password from the field works only where
    Airflow resolves connections: its ``spec()``, which is serialized for Spark executors and triggers, is refused,
    because it would contain the password. A queue with a password from the environment can be serialized: set the
    variable for the Airflow workers and for the executors, for instance with ``spark.executorEnv.NAME``. Neither kind
    shows the password in a log, a repr, an XCom or a rendered template.

    :param redis_conn_id: a connection of type ``sluicegate`` or ``redis``. The fields are host, port, login and
        password; the extra takes ``db``, ``ssl``, ``ssl_cert_reqs``, ``ssl_ca_certs``, ``ssl_certfile``,
        ``ssl_keyfile``, ``ssl_check_hostname``, ``scheme``, ``password_env``, and ``url`` instead of host, port, db and
        ssl, for instance ``embedded:///absolute/folder`` or ``unix:///path/of/socket``.
    """

    conn_name_attr = "redis_conn_id"
    default_conn_name = "sluicegate_default"
    conn_type = "sluicegate"
    hook_name = "Sluicegate"

    def __init__(self, redis_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.redis_conn_id = redis_conn_id
        # A strong reference: closing the queue releases its leases, also after the caller has dropped the queue.
        self._queues: list[RedisMessageQueue] = []

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
        for option in _PLACE:
            if option in queue_options:
                raise ConfigurationError(
                    f"{option} is not an option here: connection {self.redis_conn_id!r} says where Redis is"
                )
        queue = RedisMessageQueue(name, url=self._url, **queue_options)
        self._queues.append(queue)
        return queue

    def test_connection(self) -> tuple[bool, str]:
        """
        Check the connection by reading the depth of a queue that does not exist.

        That needs what every queue needs: the server, the credentials, and the right to run scripts. Nothing is
        written.

        :return: whether it works, and a sentence about it without secrets.
        """
        queue = None
        try:
            queue = self.get_queue("connection-test", retry_budget_seconds=0)
            queue.depth()
        except RedisMessageQueueError as error:
            return False, str(error)
        except redis.RedisError as error:
            return False, f"Redis at {self._gateway.server} refused: {error}"
        finally:
            if queue is not None:
                queue.close()
        return True, f"Redis at {self._gateway.server} answers and runs the queue's scripts"

    def close(self) -> None:
        """Close the queues and the client that this hook made; the queues release the leases that they still hold."""
        for queue in self._queues:
            queue.close()
        self._queues.clear()
        if "_gateway" in self.__dict__:
            self._gateway.close()
            del self._gateway

    def __enter__(self) -> RedisQueueHook:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @cached_property
    def _gateway(self) -> RedisGateway:
        return RedisGateway(url=self._url)

    @cached_property
    def _url(self) -> str:
        url = connection_url(self.get_connection(self.redis_conn_id))
        # Airflow masks the password field by itself, but not a password in a url of the extra.
        parts = urlsplit(url)
        for secret in (unquote(parts.password or ""), *parse_qs(parts.query).get("password", ())):
            if secret:
                mask_secret(secret)
        return url
