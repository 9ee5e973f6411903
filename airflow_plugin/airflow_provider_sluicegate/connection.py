"""Turn an Airflow connection into the URL of its Redis, without I/O and without a lookup."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from sluicegate.errors import ConfigurationError

if TYPE_CHECKING:
    from airflow.sdk import Connection

__all__ = ["CONNECTION_TYPES", "connection_url"]

CONNECTION_TYPES = ("sluicegate", "redis")

_log = logging.getLogger(__name__)
_TLS = ("ssl_cert_reqs", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname")
_KNOWN = ("url", "scheme", "db", "ssl", "password_env", *_TLS)
_ELSEWHERE = ("cluster", "cluster_mode", "sentinel", "sentinels", "sentinel_service", "master_name")
_YES, _NO = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


def connection_url(connection: Connection) -> str:
    """
    Return the Sluicegate URL of a connection.

    A literal password is part of it, so the result must not be logged, rendered or stored.

    :param connection: of type ``sluicegate`` or ``redis``.
    :raises ConfigurationError: another type, fields that contradict each other, or an unknown key of the extra.
    """
    where = f"connection {connection.conn_id!r}"
    if connection.conn_type not in CONNECTION_TYPES:
        raise ConfigurationError(
            f"{where} is of type {connection.conn_type!r}; make one of type 'sluicegate', or use one of type 'redis'"
        )
    extra = _extra(connection, where)
    query: dict[str, str] = {}
    if "url" in extra:
        base = _given_url(connection, extra, where)
    else:
        base = _composed_url(connection, extra, where)
        query = {name: str(extra[name]) for name in _TLS if name in extra and base.startswith("rediss:")}
    return _with_credentials(base, query, connection, extra, where)


def _extra(connection: Connection, where: str) -> dict[str, Any]:
    """Return the keys of the extra that are set and known; forms store an empty field as null or as an empty text."""
    found = connection.extra_dejson
    if not isinstance(found, Mapping):
        raise ConfigurationError(f"the extra of {where} must be a JSON object")
    extra = {name: value for name, value in found.items() if value is not None and value != ""}
    for name in [name for name in extra if name not in _KNOWN]:
        if connection.conn_type == "sluicegate" or (name in _ELSEWHERE and extra[name]):
            raise ConfigurationError(
                f"the extra of {where} has the key {name!r}, which Sluicegate does not support; the keys are "
                f"{', '.join(_KNOWN)}"
            )
        _log.warning("the extra of %s has the key %r, which Sluicegate does not use", where, name)
        del extra[name]
    return extra


def _given_url(connection: Connection, extra: Mapping[str, Any], where: str) -> str:
    too_many = [name for name in ("host", "port", "schema") if getattr(connection, name)]
    too_many += [name for name in ("scheme", "db", "ssl") if extra.get(name) not in (None, 0, "0", False, "false")]
    if too_many:
        raise ConfigurationError(
            f"{where} has a url in its extra and {', '.join(too_many)} as well; keep one of the two"
        )
    return str(extra["url"])


def _composed_url(connection: Connection, extra: Mapping[str, Any], where: str) -> str:
    tls = _flag(extra.get("ssl", False), f"ssl in the extra of {where}")
    scheme = str(extra.get("scheme", "rediss" if tls else "redis"))
    host = connection.host or ("localhost" if scheme in ("redis", "rediss") else "")
    if tls and scheme != "rediss":
        raise ConfigurationError(f"{where} has ssl and the scheme {scheme!r}; TLS is rediss")
    if "://" in host:
        raise ConfigurationError(f"the host of {where} is a URL; put it into the extra as url and leave host empty")
    database = _database(connection, extra, where)
    if scheme in ("redis", "rediss"):
        name = f"[{host}]" if ":" in host else host
        return f"{scheme}://{name}:{connection.port or 6379}/{database or 0}"
    if not host.startswith("/"):
        raise ConfigurationError(f"the host of {where} must be an absolute path, because its scheme is {scheme!r}")
    return f"{scheme}://{quote(host)}" + (f"?db={database}" if database else "")


def _database(connection: Connection, extra: Mapping[str, Any], where: str) -> int | None:
    """Return the number of the database, from the extra or from the path of a URI such as ``sluicegate://host/1``."""
    given = {str(value) for value in (extra.get("db"), connection.schema) if value not in (None, "")}
    if len(given) > 1:
        raise ConfigurationError(f"{where} names the database twice and differently, as db and as schema")
    if not given:
        return None
    (text,) = given
    if not (text.isascii() and text.isdigit()):
        raise ConfigurationError(f"the database of {where} must be a number of 0 or more, not {text!r}")
    return int(text)


def _with_credentials(
    base: str, query: dict[str, str], connection: Connection, extra: Mapping[str, Any], where: str
) -> str:
    try:
        parts = urlsplit(base)
    except ValueError:
        raise ConfigurationError(f"the url in the extra of {where} cannot be parsed") from None
    # Airflow's Redis provider stores "no password" as one of these words.
    password = None if str(connection.password).lower() in ("none", "false", "") else connection.password
    ways = [
        name
        for name, given in (
            ("the password field", password),
            ("password_env in the extra", extra.get("password_env")),
            ("the url", parts.password or "password=" in parts.query or "password_env=" in parts.query),
        )
        if given
    ]
    if len(ways) > 1:
        raise ConfigurationError(f"{where} has its password in {' and in '.join(ways)}; keep one of them")
    if connection.login and parts.username:
        raise ConfigurationError(f"{where} has its user in the login field and in the url; keep one of them")
    if password:
        query["password"] = password
    elif "password_env" in extra:
        query["password_env"] = str(extra["password_env"])
    netloc = f"{quote(connection.login, safe='')}@{parts.netloc}" if connection.login else parts.netloc
    joined = "&".join(text for text in (parts.query, urlencode(query)) if text)
    # urlunsplit drops the slashes of an empty authority for schemes that it does not know.
    rest = urlunsplit(("", "", parts.path, joined, parts.fragment))
    return f"{parts.scheme}://{netloc}{rest}"


def _flag(value: object, what: str) -> bool:
    """Read a yes or no, which a connection that is given as a URI carries as text."""
    text = str(value).lower()
    if text not in _YES + _NO:
        raise ConfigurationError(f"{what} must be true or false")
    return text in _YES
