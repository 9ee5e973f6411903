"""From a URL to a Redis client. No I/O happens here: a client connects at its first command."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from sluicegate._redis import topology_urls
from sluicegate._redis.url_options import refuse_unknown_options
from sluicegate.errors import ConfigurationError, OptionTypeError

__all__ = ["Address", "client_decodes", "describe_client", "is_cluster_client", "refuse_unfit_client"]

_SCHEMES = ("redis", "rediss", "unix", "embedded", *topology_urls.SCHEMES)
_CONNECT_TIMEOUT_SECONDS = 5.0
_SOCKET_TIMEOUT_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Address:
    """Where a queue's Redis is.

    Attributes:
        url: without a password.
        password_env: name of the environment variable that holds the password, None without one.
        password: a password that stood in the URL; it never leaves this process.
    """

    url: str
    password_env: str | None = None
    password: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str) -> Address:
        """Read a URL, with `?password_env=NAME` for the password.

        Schemes are `redis://`, `rediss://` (TLS), `unix://`, `embedded:///folder`,
        `redis+sentinel://host:port,host:port/service/db` and `redis+cluster://host:port,host:port`, the last two with
        TLS as `rediss+sentinel://` and `rediss+cluster://`. The option `sentinel_password_env` names the variable with
        the Sentinels' own password, and `sentinel_username` their user.

        Raises:
            ConfigurationError: another scheme, or no place to connect to.
        """
        if not isinstance(url, str):
            raise OptionTypeError(f"url must be a str, not {type(url).__name__}")
        parts = _split(url)
        if parts.scheme not in _SCHEMES:
            known = ", ".join(f"{scheme}://" for scheme in _SCHEMES)
            raise ConfigurationError(f"url scheme {parts.scheme!r} is not known; use one of {known}")
        options = parse_qsl(parts.query, keep_blank_values=True)
        if parts.scheme in topology_urls.SCHEMES:
            topology_urls.check(parts)
        _refuse_stray_secrets(parts, options)
        _refuse_unreadable_database(parts)
        refuse_unknown_options(parts, options)
        password_env = dict(options).get("password_env")
        password = dict(options).get("password") or (unquote(parts.password) if parts.password else None)
        kept = [(name, value) for name, value in options if name not in ("password", "password_env")]
        host = parts.netloc.rpartition("@")[2]
        user = f"{quote(unquote(parts.username))}@" if parts.username else ""
        clean = urlunsplit((parts.scheme, user + host, parts.path, urlencode(kept, safe="/"), ""))
        return cls(_with_slashes(clean, parts.scheme), password_env, password)

    @property
    def server(self) -> str:
        """Return the place in words, for errors: host and port, or the path; never a password."""
        parts = urlsplit(self.url)
        if parts.scheme in topology_urls.SCHEMES:
            return topology_urls.describe(parts)
        if parts.scheme in ("unix", "embedded"):
            return f"{parts.scheme}:{unquote(parts.path)}"
        return f"{parts.hostname or 'localhost'}:{parts.port or 6379}"

    def portable_url(self) -> str:
        """Return the URL for other processes, with the name of its password's variable.

        Raises:
            ConfigurationError: the URL carries its password.
        """
        if self.password is not None:
            raise ConfigurationError(
                "the queue's url carries a password, which must not be sent to executors or triggers; write "
                "redis://user@host/0?password_env=NAME and set the variable NAME where the queue is used"
            )
        if self.password_env is None:
            return self.url
        joint = "&" if "?" in self.url else "?"
        return f"{self.url}{joint}{urlencode({'password_env': self.password_env})}"

    @property
    def decode_responses(self) -> bool:
        """Return whether the URL asks for str instead of bytes: `?decode_responses=true`."""
        asked = dict(parse_qsl(urlsplit(self.url).query)).get("decode_responses", "")
        return asked.lower() in ("1", "true", "yes", "t", "y")

    def client(self) -> redis.Redis | redis.RedisCluster:
        """Return a client for this place, with redis-py's own retries off, because the gateway retries.

        It connects at its first command, but for one of a cluster, which looks around at once.

        Raises:
            ConfigurationError: a password's variable is not set, or an option of the URL is not known.
        """
        options = self._options(Retry(NoBackoff(), 0))
        if self.url.startswith("embedded:"):
            from sluicegate import embedded

            return embedded.connect(self.url, **options)
        try:
            if urlsplit(self.url).scheme in topology_urls.SCHEMES:
                return topology_urls.client(self.url, options, self._secret)
            return redis.Redis.from_url(self._bare_url(), **options)
        except (ValueError, TypeError) as error:
            raise self._unfit(error) from None

    def async_client(self) -> redis.asyncio.Redis | redis.asyncio.RedisCluster:
        """Return an asyncio client for this place.

        Raises:
            ConfigurationError: a password's variable is not set, or an option of the URL is not known.
        """
        options = self._options(AsyncRetry(NoBackoff(), 0))
        if self.url.startswith("embedded:"):
            from sluicegate.embedded import async_client

            return async_client.connect(self.url, **options)
        try:
            if urlsplit(self.url).scheme in topology_urls.SCHEMES:
                return topology_urls.async_client(self.url, options, self._secret)
            return redis.asyncio.Redis.from_url(self._bare_url(), **options)
        except (ValueError, TypeError) as error:
            raise self._unfit(error) from None

    def _options(self, no_retry: object) -> dict[str, Any]:
        options = {
            "socket_connect_timeout": _CONNECT_TIMEOUT_SECONDS,
            "socket_timeout": _SOCKET_TIMEOUT_SECONDS,
            "retry": no_retry,
        }
        password = self.password if self.password_env is None else self._secret(self.password_env)
        if password is not None:
            options["password"] = password
        if self.decode_responses:
            options["decode_responses"] = True
        parts = urlsplit(self.url)
        if parts.scheme.startswith("rediss") and dict(parse_qsl(parts.query)).get("ssl_cert_reqs") != "none":
            options["ssl_check_hostname"] = True  # unless the URL has it; redis-py 5 would take any trusted certificate
        return options

    def _bare_url(self) -> str:
        """Return the URL without options that redis-py would read as strings."""
        parts = urlsplit(self.url)
        kept = [(name, value) for name, value in parse_qsl(parts.query) if name != "decode_responses"]
        return _with_slashes(urlunsplit(parts._replace(query=urlencode(kept, safe="/"))), parts.scheme)

    def _unfit(self, error: Exception) -> ConfigurationError:
        if isinstance(error, ConfigurationError):
            return error
        return ConfigurationError(f"url for {self.server} has an option that does not work: {error}")

    def _secret(self, name: str) -> str:
        """Return a password from its environment variable."""
        secret = os.environ.get(name)
        if secret is None:
            raise ConfigurationError(
                f"the password of {self.server} is expected in the environment variable {name}, which is not set"
            )
        return secret


def _split(url: str) -> SplitResult:
    """Return the parts of a URL.

    The parser's error quotes the URL, so it is not kept as the context of ours.
    """
    with suppress(ValueError):
        return urlsplit(url)
    raise ConfigurationError("url cannot be parsed; write redis://host:6379/0 or embedded:///absolute/folder")


def _refuse_stray_secrets(parts: SplitResult, options: list[tuple[str, str]]) -> None:
    """Refuse a secret in an unexpected place, which other processes and errors would show; the error quotes nothing."""
    if any(name == "ssl_password" for name, _ in options):
        raise ConfigurationError(
            "url cannot carry ssl_password; pass client=redis.Redis(..., ssl_password=...) instead"
        )
    if any(name == "sentinel_password" for name, _ in options):
        raise ConfigurationError("url cannot carry sentinel_password; write sentinel_password_env=NAME and set NAME")
    if _is_misread(parts) or any("@" in text for text in (parts.fragment, *(name for name, _ in options))):
        raise ConfigurationError(
            "url has no readable host and port; percent-encode / ? # and @ in its user name and password, or leave the "
            "password out and name its variable with ?password_env=NAME"
        )


def _refuse_unreadable_database(parts: SplitResult) -> None:
    """Refuse a path that is no number, for which redis-py would silently take database 0."""
    if parts.scheme in ("redis", "rediss") and not re.fullmatch(r"/?|/[0-9]+/?", parts.path):
        raise ConfigurationError("the path of a url is the number of its database; write redis://host:6379/0")


def _is_misread(parts: SplitResult) -> bool:
    """Return whether a `/`, `?` or `#` in a password cut off the host part of a URL."""
    if parts.scheme in ("unix", "embedded"):  # their paths may hold an @, and they have no host
        return bool(parts.netloc.rpartition("@")[2])
    if parts.scheme in topology_urls.SCHEMES:  # whose hosts are looked through elsewhere
        return "@" in parts.path
    try:
        return "@" in parts.path or (parts.port is not None and parts.port < 1)
    except ValueError:
        return True


def refuse_unfit_client(client: object, *, asynchronous: bool = False) -> None:
    """Refuse a client that a queue cannot use.

    Args:
        client: of the user.
        asynchronous: whether the queue is one for asyncio.

    Raises:
        ConfigurationError: a pipeline, a Sentinel manager, a single-connection client, a client of the other flavour.
        OptionTypeError: not a Redis client at all.
    """
    module, name = type(client).__module__, type(client).__name__
    fitting: tuple[type, ...] = (redis.Redis, redis.RedisCluster)
    other: tuple[type, ...] = (redis.asyncio.Redis, redis.asyncio.RedisCluster)
    needed, queue = "redis.Redis or redis.RedisCluster", "sluicegate.asyncio.RedisMessageQueue"
    if asynchronous:
        fitting, other = other, fitting
        needed, queue = "redis.asyncio.Redis or redis.asyncio.RedisCluster", "sluicegate.RedisMessageQueue"
    if name == "Sentinel":
        raise ConfigurationError("client is a Sentinel manager; pass sentinel.master_for(service) instead")
    if "Pipeline" in name and module.startswith("redis."):
        raise ConfigurationError("client is a pipeline; pass the client that it came from")
    if isinstance(client, other) and not isinstance(client, fitting):
        flavour = "a synchronous client" if asynchronous else "an asyncio client"
        raise ConfigurationError(f"client is {flavour}; this queue needs {needed} (that client fits {queue})")
    if not isinstance(client, fitting):
        raise OptionTypeError(f"client must be a {needed}, not {module}.{name}")
    if getattr(client, "connection", None) is not None or getattr(client, "single_connection_client", False):
        raise ConfigurationError(
            "client was made with single_connection_client=True, which heartbeats and waits "
            "cannot share; make it without"
        )


_is_of_cluster: dict[type, bool] = {}  # by the type of a client, because every call asks, and looking costs 2 us


def is_cluster_client(client: Any) -> bool:
    """Return whether a client is one of a cluster, of either flavour."""
    kind = type(client)
    known = _is_of_cluster.get(kind)
    if known is None:
        known = _is_of_cluster[kind] = issubclass(kind, (redis.RedisCluster, redis.asyncio.RedisCluster))
    return known


def client_decodes(client: Any) -> bool:
    """Return whether a client gives str instead of bytes."""
    return bool(client.get_encoder().decode_responses)


def describe_client(client: Any) -> str:
    """Return where a client connects to, for errors; never a password."""
    if is_cluster_client(client):
        nodes = [*client.get_nodes(), *client.nodes_manager.startup_nodes.values()]
        return f"the cluster of {nodes[0].host}:{nodes[0].port}" if nodes else "a cluster"
    options = client.connection_pool.connection_kwargs
    if "path" in options:
        return f"unix:{options['path']}"
    if "host" in options or "port" in options:
        return f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"
    service = getattr(client.connection_pool, "service_name", None)
    return f"the Sentinel service {service}" if service else "localhost:6379"


def _with_slashes(url: str, scheme: str) -> str:
    """Return a URL with its `//`, which `urlunsplit` drops from unix and embedded URLs on some Python versions."""
    prefix = f"{scheme}:"
    rest = url[len(prefix) :]
    return url if rest.startswith("//") else f"{prefix}//{rest}"
