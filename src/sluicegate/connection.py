"""From a URL to a Redis client. No I/O happens here: a client connects at its first command."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from sluicegate.errors import ConfigurationError

__all__ = ["Address", "describe_client", "refuse_unfit_client"]

_SCHEMES = ("redis", "rediss", "unix", "embedded")
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
        """Read a URL: `redis://`, `rediss://`, `unix://` or `embedded:///folder`, with `?password_env=NAME` for the
        password.

        Raises:
            ConfigurationError: another scheme, or no place to connect to.
        """
        if not isinstance(url, str):
            raise TypeError(f"url must be a str, not {type(url).__name__}")
        try:
            parts = urlsplit(url)
        except ValueError:
            raise ConfigurationError(
                "url cannot be parsed; write redis://host:6379/0 or embedded:///absolute/folder"
            ) from None
        if parts.scheme not in _SCHEMES:
            known = ", ".join(f"{scheme}://" for scheme in _SCHEMES)
            raise ConfigurationError(f"url scheme {parts.scheme!r} is not known; use one of {known}")
        options = parse_qsl(parts.query, keep_blank_values=True)
        _refuse_stray_secrets(parts, options)
        password_env = dict(options).get("password_env")
        password = dict(options).get("password") or (unquote(parts.password) if parts.password else None)
        kept = [(name, value) for name, value in options if name not in ("password", "password_env")]
        host = parts.netloc.rpartition("@")[2]
        user = f"{quote(unquote(parts.username))}@" if parts.username else ""
        clean = urlunsplit((parts.scheme, user + host, parts.path, urlencode(kept, safe="/"), ""))
        return cls(_with_slashes(clean, parts.scheme), password_env, password)

    @property
    def server(self) -> str:
        """The place in words, for errors: host and port, or the path; never a password."""
        parts = urlsplit(self.url)
        if parts.scheme in ("unix", "embedded"):
            return f"{parts.scheme}:{unquote(parts.path)}"
        return f"{parts.hostname or 'localhost'}:{parts.port or 6379}"

    def portable_url(self) -> str:
        """The URL as it may travel: with the reference to its password.

        Raises:
            ConfigurationError: the URL carries its password.
        """
        if self.password is not None:
            raise ConfigurationError(
                "the queue's url carries a password, which must not travel to executors or triggers; write "
                "redis://user@host/0?password_env=NAME and set the variable NAME where the queue is used"
            )
        if self.password_env is None:
            return self.url
        joint = "&" if "?" in self.url else "?"
        return f"{self.url}{joint}{urlencode({'password_env': self.password_env})}"

    def client(self) -> redis.Redis:
        """A client for this place, with redis-py's own retries off, because the gateway retries.

        Raises:
            ConfigurationError: the password's variable is not set, or an option of the URL is not known.
        """
        options: dict[str, Any] = {
            "socket_connect_timeout": _CONNECT_TIMEOUT_SECONDS,
            "socket_timeout": _SOCKET_TIMEOUT_SECONDS,
            "retry": Retry(NoBackoff(), 0),
        }
        password = self._password()
        if password is not None:
            options["password"] = password
        if self.url.startswith("embedded:"):
            from sluicegate import embedded

            return embedded.connect(self.url, **options)
        try:
            return redis.Redis.from_url(self.url, **options)
        except (ValueError, TypeError) as error:
            raise ConfigurationError(f"url for {self.server} has an option that does not work: {error}") from None

    def _password(self) -> str | None:
        if self.password_env is None:
            return self.password
        password = os.environ.get(self.password_env)
        if password is None:
            raise ConfigurationError(
                f"the password of {self.server} is expected in the environment variable {self.password_env}, "
                f"which is not set"
            )
        return password


def _refuse_stray_secrets(parts: SplitResult, options: list[tuple[str, str]]) -> None:
    """A secret that is not where secrets stand would travel and show in errors; the errors here quote nothing."""
    if any(name == "ssl_password" for name, _ in options):
        raise ConfigurationError(
            "url cannot carry ssl_password; pass client=redis.Redis(..., ssl_password=...) instead"
        )
    if parts.scheme not in ("redis", "rediss"):
        return
    try:
        misread = parts.port is not None and parts.port < 1
    except ValueError:
        misread = True
    if misread or any("@" in text for text in (parts.path, parts.fragment, *(name for name, _ in options))):
        raise ConfigurationError(
            "url has no readable host and port; percent-encode / ? # and @ in its user name and password, or write "
            "redis://user@host:6379/0?password_env=NAME"
        )


def refuse_unfit_client(client: object) -> None:
    """Refuse what is not a plain synchronous client.

    Raises:
        ConfigurationError: a pipeline, a Sentinel manager, a single-connection client, an asyncio or a cluster client.
        TypeError: not a Redis client at all.
    """
    module, name = type(client).__module__, type(client).__name__
    if module.startswith("redis.asyncio"):
        raise ConfigurationError("client is an asyncio client; this queue needs redis.Redis")
    if name == "Sentinel":
        raise ConfigurationError("client is a Sentinel manager; pass sentinel.master_for(service) instead")
    if isinstance(client, redis.client.Pipeline):
        raise ConfigurationError("client is a pipeline; pass the redis.Redis that it came from")
    if isinstance(client, redis.RedisCluster):
        raise ConfigurationError(
            "cluster clients are not supported yet; pass a redis.Redis of a standalone or Sentinel server"
        )
    if not isinstance(client, redis.Redis):
        raise TypeError(f"client must be a redis.Redis, not {module}.{name}")
    if client.connection is not None:
        raise ConfigurationError(
            "client was made with single_connection_client=True, which heartbeats and waits "
            "cannot share; make it without"
        )


def describe_client(client: redis.Redis) -> str:
    """Where a client connects to, for errors; never a password."""
    options = client.connection_pool.connection_kwargs
    if "path" in options:
        return f"unix:{options['path']}"
    if "host" in options or "port" in options:
        return f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"
    service = getattr(client.connection_pool, "service_name", None)
    return f"the Sentinel service {service}" if service else "localhost:6379"


def _with_slashes(url: str, scheme: str) -> str:
    """`urlunsplit` drops the empty authority of unix and embedded URLs on some Python versions; they keep it."""
    prefix = f"{scheme}:"
    rest = url[len(prefix) :]
    return url if rest.startswith("//") else f"{prefix}//{rest}"
