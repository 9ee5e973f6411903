"""Tell a server that speaks TLS from one that does not, after a first contact that only timed out or was cut off."""

from __future__ import annotations

import socket
import ssl
from urllib.parse import urlsplit

from redis import exceptions as redis_errors

from sluicegate._redis import error_mapping, topology_urls
from sluicegate._redis.connection import Address
from sluicegate.errors import ConfigurationError

__all__ = ["may_differ", "other_encryption"]

_PROBE_SECONDS = 1.0


def may_differ(address: Address, error: BaseException) -> bool:
    """Return whether a failed first contact is what a URL with TLS meets on a plain port, or the reverse."""
    scheme = urlsplit(address.url).scheme
    if not scheme.startswith("redis") or error_mapping.is_untrusted(error) or error_mapping.answered(error):
        return False
    cut_off = isinstance(error, (redis_errors.ConnectionError, redis_errors.InvalidResponse, ConnectionError))
    if error_mapping.access_refused(address.server, error) is not None or isinstance(
        error.__cause__ or error.__context__, ConnectionRefusedError
    ):
        return False
    # A plain port waits for the end of the line that the first message of TLS never has.
    return cut_off or (
        scheme.startswith("rediss")
        and isinstance(error, (redis_errors.TimeoutError, redis_errors.RedisClusterException))
    )


def other_encryption(address: Address) -> ConfigurationError | None:
    """Connect once more, within a second, and return the error for a server that speaks TLS only, or never.

    Returns:
        None when the server does as the URL says, or does not answer.
    """
    parts = urlsplit(address.url)
    tls = parts.scheme.startswith("rediss")
    if parts.scheme in topology_urls.SCHEMES:
        place = topology_urls.hosts(parts)[0]
    else:
        place = parts.hostname or "localhost", parts.port or 6379
    try:
        with socket.create_connection(place, timeout=_PROBE_SECONDS) as connection:
            if _speaks_plainly(connection) if tls else _speaks_tls(connection):
                return _explained(place, tls=tls)
    except OSError:
        pass
    return None


def _speaks_plainly(connection: socket.socket) -> bool:
    connection.sendall(b"PING\r\n")
    return connection.recv(16).startswith((b"+PONG", b"-"))


def _speaks_tls(connection: socket.socket) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing secret is sent
    try:
        context.wrap_socket(connection).close()
    except ssl.SSLError as error:  # for instance, it wants a client certificate
        return "ALERT" in (error.reason or "")
    return True


def _explained(place: tuple[str, int], *, tls: bool) -> ConfigurationError:
    server = f"{place[0]}:{place[1]}"
    if tls:
        return ConfigurationError(
            f"Redis at {server} does not speak TLS, which the url asks for; write redis instead of rediss, or give "
            "the server's TLS port (in an Airflow connection: ssl in its extra, and port)"
        )
    return ConfigurationError(
        f"Redis at {server} speaks TLS, which the url does not ask for; write rediss instead of redis (in an Airflow "
        "connection: ssl in its extra)"
    )
