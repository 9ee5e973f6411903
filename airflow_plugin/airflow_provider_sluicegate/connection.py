"""Turn an Airflow connection into the URL of its Redis, without I/O and without a lookup."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit, urlunsplit

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from sluicegate.errors import ConfigurationError

__all__ = ["CONNECTION_TYPES", "EXTRA_KEYS", "connection_url", "secrets_in"]

CONNECTION_TYPES = ("sluicegate", "redis")

_log = logging.getLogger(__name__)
_TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_TLS = ("ssl_cert_reqs", *_TLS_FILES, "ssl_check_hostname")
_TOPOLOGY = ("cluster", "sentinel_service", "sentinel_login", "sentinel_auth_env")
# Airflow masks every field with "password" in its name, so that nobody can read there which variable is meant.
_VARIABLES = ("auth_env", "password_env")
_OPTIONS = {"sentinel_auth_env": "sentinel_password_env", **dict.fromkeys(_VARIABLES, "password_env")}
EXTRA_KEYS = ("url", "scheme", "db", "ssl", *_TOPOLOGY, *_VARIABLES, *_TLS)
"""What the extra of a connection may hold."""

_SCHEMES = (
    *("redis", "rediss", "unix", "embedded"),
    *("redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"),
)
_INSTEAD = {
    "cluster_mode": "cluster",
    "master_name": "sentinel_service, and the Sentinels as host",
    "sentinel": "sentinel_service, and the Sentinels as host",
    "sentinel_password": "sentinel_auth_env, the name of an environment variable",
    "sentinel_password_env": "sentinel_auth_env",
    "sentinel_username": "sentinel_login",
    "sentinels": "sentinel_service, and the Sentinels as host",
    "username": "the login field",
    "password": "the password field, or auth_env",
}
_YES, _NO = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MASK = "***"


def connection_url(connection: Connection) -> str:
    """
    Return the Sluicegate URL of a connection.

    A literal password is part of it, so the result must not be logged, rendered or stored.

    :param connection: of type ``sluicegate`` or ``redis``.
    :raises ConfigurationError: another type, fields that contradict each other, or an unknown key of the extra.
    """
    return _Reader(connection).url()


def secrets_in(url: str) -> list[str]:
    """Return the passwords that a URL holds, which Airflow does not know to be secret."""
    parts = urlsplit(url)
    return [secret for secret in (unquote(parts.password or ""), *parse_qs(parts.query).get("password", ())) if secret]


@dataclass
class _Reader:
    """Reads one connection; every error names it, and none repeats the value of a secret or of an unknown key."""

    connection: Connection
    extra: dict[str, Any] = field(init=False)

    def url(self) -> str:
        self._refuse_other_types()
        self.extra = self._read_extra()
        if "url" in self.extra:
            return self._with_credentials(self._given_url(), {})
        base = self._composed_url()
        tls = base.startswith("rediss")
        unused = [name for name in _TLS_FILES if name in self.extra and not tls]
        if unused and self.connection.conn_type == "sluicegate":
            raise self._error(f"has {', '.join(unused)} in its extra without TLS; set ssl to true there, or remove it")
        return self._with_credentials(
            base, {name: str(self.extra[name]) for name in _TLS if tls and name in self.extra}
        )

    def _refuse_other_types(self) -> None:
        kind = self.connection.conn_type
        if kind == "generic":
            raise self._error(
                "is of type 'generic', which Airflow stores for a type that it does not know where the connection is "
                "added, such as 'redis' without the Redis provider; delete it and add it with the type 'sluicegate'"
            )
        if kind not in CONNECTION_TYPES:
            raise self._error(f"is of type {kind!r}; make one of type 'sluicegate', or use one of type 'redis'")

    def _read_extra(self) -> dict[str, Any]:
        """Return the keys that are set and known; forms store an empty field as null or as an empty text."""
        try:
            found = json.loads(self.connection.extra or "{}")
        except ValueError:
            found = None
        if not isinstance(found, Mapping):
            raise self._error('must have a JSON object as its extra, for instance {"db": 1}')
        extra = {name: value for name, value in found.items() if value is not None and value != ""}
        for name in [name for name in extra if name not in EXTRA_KEYS]:
            if self.connection.conn_type == "sluicegate" or (name in _INSTEAD and extra[name]):
                advice = f"use {_INSTEAD[name]}" if name in _INSTEAD else f"the keys are {', '.join(EXTRA_KEYS)}"
                raise self._error(f"has the key {name!r} in its extra, which Sluicegate does not support; {advice}")
            _log.warning("the extra of %s has the key %r, which Sluicegate does not use", self._where, name)
            del extra[name]
        masked = [name for name, value in extra.items() if value == _MASK]
        if masked:
            raise self._error(
                f"has {_MASK} as {', '.join(masked)} in its extra: the masked text was stored in place of the value; "
                "write the value again, and the name of a password's variable as auth_env, which is not masked"
            )
        return extra

    def _given_url(self) -> str:
        too_many = [name for name in ("host", "port", "schema") if getattr(self.connection, name)]
        too_many += [
            name
            for name in ("scheme", "db", "ssl", *_TOPOLOGY)
            if str(self.extra.get(name, 0)).lower() not in ("0", "false")
        ]
        if too_many:
            raise self._error(f"has a url in its extra and {', '.join(too_many)} as well; keep one of the two")
        return str(self.extra["url"])

    def _composed_url(self) -> str:
        scheme = self._scheme()
        database = self._database()
        host = self.connection.host or ""
        if scheme in ("unix", "embedded"):
            if not host.startswith("/"):
                raise self._error(f"must have an absolute path as its host, because its scheme is {scheme!r}")
            if database and scheme == "embedded":
                raise self._error("has a db, but an embedded server has database 0 only; remove it")
            return f"{scheme}://{quote(host)}" + (f"?db={database}" if database else "")
        hosts = self._hosts(26379 if scheme.endswith("+sentinel") else 6379, several="+" in scheme)
        if scheme.endswith("+cluster"):
            if database:
                raise self._error("has a db, but a cluster has database 0 only; remove it")
            return f"{scheme}://{hosts}"
        if scheme.endswith("+sentinel"):
            return f"{scheme}://{hosts}/{quote(str(self.extra['sentinel_service']), safe='')}/{database or 0}"
        return f"{scheme}://{hosts}/{database or 0}"

    def _scheme(self) -> str:
        """Return the scheme that the extra names, or that its other keys and the host amount to."""
        tls, cluster = self._flag("ssl"), self._flag("cluster")
        sentinel = "sentinel_service" in self.extra
        if cluster and sentinel:
            raise self._error("has cluster and sentinel_service in its extra; a server is behind one of the two")
        kind = "+cluster" if cluster else "+sentinel" if sentinel else ""
        plain = "unix" if (self.connection.host or "").startswith("/") and not kind and not tls else "redis"
        scheme = str(self.extra.get("scheme", f"rediss{kind}" if tls else f"{plain}{kind}"))
        if scheme not in _SCHEMES:
            raise self._error(f"has an unknown scheme in its extra; use one of {', '.join(_SCHEMES)}")
        if tls and not scheme.startswith("rediss"):
            raise self._error(f"has ssl and the scheme {scheme!r}; TLS is rediss")
        if kind and not scheme.endswith(kind):
            raise self._error(f"has {'cluster' if cluster else 'sentinel_service'} and the scheme {scheme!r}; keep one")
        if scheme.endswith("+sentinel") and not sentinel:
            raise self._error("names no Sentinel service; write its name as sentinel_service into the extra")
        spare = [name for name in _TOPOLOGY[2:] if name in self.extra and not scheme.endswith("+sentinel")]
        if spare:
            raise self._error(f"has {', '.join(spare)} in its extra without sentinel_service; add that, or remove it")
        return scheme

    def _hosts(self, port: int, *, several: bool) -> str:
        """Return the hosts with their ports; a list has the port field for those that name none."""
        given = self.connection.host or "localhost"
        if "://" in given:
            raise self._error("has a URL as its host; put it into the extra as url and leave host empty")
        if given.startswith("/"):
            raise self._error("has a path as its host, which a socket without TLS, cluster and Sentinel has")
        port = self.connection.port or port
        if not several:
            if "," in given:
                raise self._error("has several hosts; add sentinel_service or cluster to its extra, or keep one host")
            return f"{_bracketed(given)}:{port}"
        names = [name.strip() for name in given.split(",")]
        return ",".join(name if _has_port(name) else f"{_bracketed(name)}:{port}" for name in names if name)

    def _database(self) -> int | None:
        """Return the number of the database, from the extra or from the path of a URI: ``sluicegate://host/1``."""
        given = {str(value) for value in (self.extra.get("db"), self.connection.schema) if value not in (None, "")}
        if len(given) > 1:
            raise self._error("names the database twice and differently, as db and as schema")
        if not given:
            return None
        (text,) = given
        if not (text.isascii() and text.isdigit()):
            raise self._error(f"must have a number of 0 or more as its database, not {text!r}")
        return int(text)

    def _with_credentials(self, base: str, query: dict[str, str]) -> str:
        try:
            parts = urlsplit(base)
        except ValueError:
            raise self._error("has a url in its extra that cannot be parsed") from None
        # Airflow's Redis provider stores "no password" as one of these words.
        stored = self.connection.password
        password = None if str(stored).lower() in ("none", "false", "") else stored
        in_url = parts.password or {"password", "password_env"} & set(parse_qs(parts.query, keep_blank_values=True))
        ways = [
            *(["the password field"] if password else []),
            *(f"{name} in the extra" for name in _VARIABLES if name in self.extra),
            *(["the url"] if in_url else []),
        ]
        if len(ways) > 1:
            raise self._error(f"has its password in {' and in '.join(ways)}; keep one of them")
        login = self.connection.login
        if login and parts.username:
            raise self._error("has its user in the login field and in the url; keep one of them")
        if password:
            query["password"] = password
        for name in (*_VARIABLES, "sentinel_auth_env"):
            if name in self.extra:
                query[_OPTIONS[name]] = self._variable(name)
        if "sentinel_login" in self.extra:
            query["sentinel_username"] = str(self.extra["sentinel_login"])
        netloc = f"{quote(login, safe='')}@{parts.netloc}" if login else parts.netloc
        joined = "&".join(text for text in (parts.query, urlencode(query)) if text)
        # urlunsplit drops the slashes of an empty authority for schemes that it does not know.
        rest = urlunsplit(("", "", parts.path, joined, parts.fragment))
        return f"{parts.scheme}://{netloc}{rest}"

    def _variable(self, name: str) -> str:
        """Return the name of an environment variable; a password written there by mistake is not repeated."""
        value = str(self.extra[name])
        if not _VARIABLE.fullmatch(value):
            raise self._error(
                f"must have the name of an environment variable as {name} in its extra, such as "
                "QUEUE_PASSWORD; a password itself belongs in the password field"
            )
        return value

    def _flag(self, name: str) -> bool:
        """Read a yes or no, which a connection that is given as a URI carries as text."""
        text = str(self.extra.get(name, False)).lower()
        if text not in _YES + _NO:
            raise self._error(f"must have true or false as {name} in its extra")
        return text in _YES

    @property
    def _where(self) -> str:
        return f"connection {self.connection.conn_id!r}"

    def _error(self, reason: str) -> ConfigurationError:
        from sluicegate.errors import ConfigurationError

        return ConfigurationError(f"{self._where} {reason}")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _has_port(host: str) -> bool:
    return re.fullmatch(r"(\[[^\]]+\]|[^:]+):\d+", host) is not None
