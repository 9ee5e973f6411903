"""From the fields of an Airflow connection to a URL."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from airflow.sdk import Connection

from airflow_provider_sluicegate.connection import connection_url
from sluicegate._redis.connection import Address
from sluicegate.errors import ConfigurationError
from tests.airflow.conftest import PASSWORD

pytestmark = pytest.mark.airflow

# What the form of Airflow's Redis provider stores when nobody has touched it.
UNTOUCHED_FORM = {"db": 0, "ssl": False, "ssl_cert_reqs": "required", "ssl_ca_certs": None, "ssl_check_hostname": False}
SLUICEGATE = "sluicegate"


def connection(conn_type: str = "sluicegate", *, extra: Any = None, **fields: Any) -> Connection:
    text = extra if extra is None or isinstance(extra, str) else json.dumps(extra)
    return Connection(conn_id="orders", conn_type=conn_type, extra=text, **fields)


@pytest.mark.parametrize("conn_type", ["sluicegate", "redis"])
@pytest.mark.parametrize(
    ("fields", "url"),
    [
        ({}, "redis://localhost:6379/0"),
        ({"host": "cache", "port": 6380, "extra": {"db": 3}}, "redis://cache:6380/3"),
        ({"host": "cache", "extra": {"db": "3"}}, "redis://cache:6379/3"),
        ({"host": "cache", "schema": "3"}, "redis://cache:6379/3"),
        ({"host": "cache", "schema": "3", "extra": {"db": 3}}, "redis://cache:6379/3"),
        ({"host": "::1"}, "redis://[::1]:6379/0"),
        ({"host": "cache", "login": "a b@c"}, "redis://a%20b%40c@cache:6379/0"),
        ({"host": "cache", "extra": {"ssl": True}}, "rediss://cache:6379/0"),
        ({"host": "cache", "extra": {"ssl": "true", "ssl_ca_certs": "/ca.pem"}}, "rediss://cache:6379/0?ssl_ca_certs=%2Fca.pem"),
        ({"host": "cache", "extra": {"scheme": "rediss", "ssl_check_hostname": False}}, "rediss://cache:6379/0?ssl_check_hostname=False"),
        ({"host": "cache", "extra": UNTOUCHED_FORM}, "redis://cache:6379/0"),
        ({"host": "cache", "password": "None"}, "redis://cache:6379/0"),
        ({"host": "cache", "extra": {"password_env": "QUEUE_PASSWORD"}}, "redis://cache:6379/0?password_env=QUEUE_PASSWORD"),
        ({"extra": {"url": "embedded:///var/tmp/orders"}}, "embedded:///var/tmp/orders"),
        ({"extra": {"url": "embedded:///var/tmp/orders?fsync=always", "db": 0, "ssl": False, "host": ""}}, "embedded:///var/tmp/orders?fsync=always"),
        ({"extra": {"url": "unix:///run/redis.sock?db=2", "password_env": "P"}}, "unix:///run/redis.sock?db=2&password_env=P"),
        ({"extra": {"url": "rediss://user@cache/1?password_env=P"}}, "rediss://user@cache/1?password_env=P"),
        ({"host": "/run/redis.sock", "extra": {"scheme": "unix", "db": 2}}, "unix:///run/redis.sock?db=2"),
        ({"host": "/var/tmp/my orders", "extra": {"scheme": "embedded"}}, "embedded:///var/tmp/my%20orders"),
    ],
)  # fmt: skip
def test_says_where_redis_is(conn_type: str, fields: dict[str, Any], url: str) -> None:
    assert connection_url(connection(conn_type, **fields)) == url


@pytest.mark.parametrize(
    "fields",
    [
        {"host": "cache", "password": PASSWORD},
        {"host": "cache", "login": "ü", "password": PASSWORD, "extra": {"ssl": True}},
        {"password": PASSWORD, "extra": {"url": "unix:///run/redis.sock?db=1"}},
    ],
)
def test_a_password_arrives_as_it_is_and_never_travels(fields: dict[str, Any]) -> None:
    address = Address.parse(connection_url(connection(**fields)))

    assert address.password == PASSWORD
    assert PASSWORD not in repr(address)
    with pytest.raises(ConfigurationError, match="must not be sent"):
        address.portable_url()


def test_a_reference_to_a_password_travels() -> None:
    address = Address.parse(connection_url(connection(host="cache", extra={"password_env": "QUEUE_PASSWORD"})))

    assert address.password is None
    assert address.portable_url() == "redis://cache:6379/0?password_env=QUEUE_PASSWORD"


def test_reads_a_connection_that_is_given_as_a_uri() -> None:
    given = Connection.from_uri(
        "sluicegate://user:p%40ss@cache:6380/?db=2&ssl=true&ssl_cert_reqs=none", conn_id="orders"
    )

    address = Address.parse(connection_url(given))

    assert (address.url, address.password) == ("rediss://user@cache:6380/2?ssl_cert_reqs=none", "p@ss")


@pytest.mark.parametrize(
    ("conn_type", "fields", "reason"),
    [
        ("postgres", {}, "of type 'postgres'; make one of type 'sluicegate'"),
        (SLUICEGATE, {"extra": {"databse": 3}}, "the key 'databse', which Sluicegate does not support"),
        ("redis", {"extra": {"cluster": True}}, "the key 'cluster', which Sluicegate does not support"),
        ("redis", {"extra": "[1]"}, "must be a JSON object"),
        (SLUICEGATE, {"host": "cache", "extra": {"url": "redis://other"}}, "a url in its extra and host as well"),
        (SLUICEGATE, {"port": 1, "extra": {"url": "redis://other", "db": 3}}, "url in its extra and port, db as well"),
        (SLUICEGATE, {"extra": {"db": "first"}}, "must be a number of 0 or more, not 'first'"),
        (SLUICEGATE, {"extra": {"db": 1}, "schema": "2"}, "names the database twice and differently"),
        (SLUICEGATE, {"extra": {"ssl": "perhaps"}}, "ssl in the extra of connection 'orders' must be true or false"),
        (SLUICEGATE, {"extra": {"ssl": True, "scheme": "unix"}}, "has ssl and the scheme 'unix'"),
        (SLUICEGATE, {"host": "redis://cache"}, "is a URL; put it into the extra as url"),
        (SLUICEGATE, {"host": "cache", "extra": {"scheme": "unix"}}, "must be an absolute path"),
        (SLUICEGATE, {"password": PASSWORD, "extra": {"password_env": "P"}}, "the password field and in password_env"),
        (SLUICEGATE, {"password": PASSWORD, "extra": {"url": "redis://:x@cache"}}, "the password field and in the url"),
        (SLUICEGATE, {"login": "a", "extra": {"url": "redis://b@cache"}}, "its user in the login field and in the url"),
        (SLUICEGATE, {"extra": {"url": "redis://[cache"}}, "cannot be parsed"),
    ],
)  # fmt: skip
def test_refuses_what_cannot_work(conn_type: str, fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match="connection 'orders'") as refused:
        connection_url(connection(conn_type, **fields))

    assert reason in str(refused.value)
    assert PASSWORD not in str(refused.value)


def test_keys_that_another_user_of_a_redis_connection_needs_are_named_and_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        url = connection_url(connection("redis", host="cache", extra={"region": "CANARY", "cluster": False}))

    assert url == "redis://cache:6379/0"
    assert "the key 'region'" in caplog.text
    assert "CANARY" not in caplog.text
