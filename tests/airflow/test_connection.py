"""From the fields of an Airflow connection to a URL."""

from __future__ import annotations

import json
import logging
import re
import shlex
from typing import Any

import pytest
from airflow.sdk import Connection

from airflow_provider_sluicegate.connection import connection_url
from sluicegate._redis.connection import Address
from sluicegate.errors import ConfigurationError
from tests.airflow.conftest import PASSWORD
from tests.support.project import ROOT

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
        ({"host": "/run/redis.sock"}, "unix:///run/redis.sock"),
        ({"host": "cache", "extra": {"auth_env": "QUEUE_PASSWORD"}}, "redis://cache:6379/0?password_env=QUEUE_PASSWORD"),
        ({"host": "a, b:1", "extra": {"sentinel_service": "orders db"}}, "redis+sentinel://a:26379,b:1/orders%20db/0"),
        ({"host": "a", "port": 7, "extra": {"sentinel_service": "s", "db": 2, "ssl": True}}, "rediss+sentinel://a:7/s/2"),
        (
            {"host": "a", "extra": {"sentinel_service": "s", "sentinel_login": "u", "sentinel_auth_env": "S"}},
            "redis+sentinel://a:26379/s/0?sentinel_password_env=S&sentinel_username=u",
        ),
        ({"host": "a,[::1]:7,::2", "login": "u", "extra": {"cluster": True}}, "redis+cluster://u@a:6379,[::1]:7,[::2]:6379"),
        ({"host": "a", "extra": {"cluster": True, "ssl": True, "ssl_ca_certs": "/ca.pem"}}, "rediss+cluster://a:6379?ssl_ca_certs=%2Fca.pem"),
        ({"host": "a", "extra": {"scheme": "redis+cluster"}}, "redis+cluster://a:6379"),
        ({"extra": {"url": "redis+sentinel://a,b/orders/0?sentinel_password_env=S", "auth_env": "P"}}, "redis+sentinel://a,b/orders/0?sentinel_password_env=S&password_env=P"),
        ({"host": "/var/tmp/my orders", "extra": {"scheme": "embedded"}}, "embedded:///var/tmp/my%20orders"),
    ],
)  # fmt: skip
def test_says_where_redis_is(conn_type: str, fields: dict[str, Any], url: str) -> None:
    found = connection_url(connection(conn_type, **fields))

    assert found == url
    Address.parse(found)


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
        ("generic", {}, "of type 'generic', which Airflow stores for a type that it does not know"),
        (SLUICEGATE, {"extra": {"databse": 3}}, "the key 'databse' in its extra, which Sluicegate"),
        ("redis", {"extra": {"cluster_mode": True}}, "which Sluicegate does not support; use cluster"),
        ("redis", {"extra": {"sentinels": "a,b"}}, "use sentinel_service"),
        (SLUICEGATE, {"extra": {"password": PASSWORD}}, "use the password field, or auth_env"),
        ("redis", {"extra": "[1]"}, "must have a JSON object as its extra"),
        ("redis", {"extra": '{"db": 1'}, "must have a JSON object as its extra"),
        (SLUICEGATE, {"extra": {"password_env": "***"}}, "the masked text was stored"),
        (SLUICEGATE, {"extra": {"auth_env": PASSWORD}}, "must have the name of an environment variable as auth_env"),
        (SLUICEGATE, {"extra": {"auth_env": "A", "password_env": "B"}}, "in auth_env in the extra and in password_env"),
        (SLUICEGATE, {"host": "a,b"}, "has several hosts; add sentinel_service or cluster"),
        (SLUICEGATE, {"extra": {"cluster": True, "sentinel_service": "s"}}, "a server is behind one of the two"),
        (SLUICEGATE, {"extra": {"cluster": True, "db": 1}}, "a cluster has database 0 only"),
        (SLUICEGATE, {"extra": {"cluster": True, "scheme": "redis"}}, "has cluster and the scheme 'redis'"),
        (SLUICEGATE, {"extra": {"scheme": "redis+sentinel"}}, "names no Sentinel service"),
        (SLUICEGATE, {"extra": {"sentinel_login": "u"}}, "has sentinel_login in its extra without sentinel_service"),
        (SLUICEGATE, {"extra": {"scheme": "valkey"}}, "has an unknown scheme in its extra; use one of redis, rediss"),
        (SLUICEGATE, {"extra": {"ssl_ca_certs": "/ca.pem"}}, "has ssl_ca_certs in its extra without TLS"),
        (SLUICEGATE, {"extra": {"url": "redis://a", "cluster": True}}, "a url in its extra and cluster as well"),
        (SLUICEGATE, {"host": "/run/redis.sock", "extra": {"ssl": True}}, "has a path as its host"),
        (SLUICEGATE, {"host": "/var/orders", "extra": {"scheme": "embedded", "db": 1}}, "has database 0 only"),
        (SLUICEGATE, {"host": "cache", "extra": {"url": "redis://other"}}, "a url in its extra and host as well"),
        (SLUICEGATE, {"port": 1, "extra": {"url": "redis://other", "db": 3}}, "url in its extra and port, db as well"),
        (SLUICEGATE, {"extra": {"db": "first"}}, "must have a number of 0 or more as its database, not 'first'"),
        (SLUICEGATE, {"extra": {"db": 1}, "schema": "2"}, "names the database twice and differently"),
        (SLUICEGATE, {"extra": {"ssl": "perhaps"}}, "must have true or false as ssl in its extra"),
        (SLUICEGATE, {"extra": {"ssl": True, "scheme": "unix"}}, "has ssl and the scheme 'unix'"),
        (SLUICEGATE, {"host": "redis://cache"}, "has a URL as its host; put it into the extra as url"),
        (SLUICEGATE, {"host": "cache", "extra": {"scheme": "unix"}}, "must have an absolute path as its host"),
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
    assert "has the key 'region'" in caplog.text
    assert "CANARY" not in caplog.text


def test_airflow_shows_the_name_of_the_new_fields_and_masks_the_old_one() -> None:
    from airflow.sdk._shared.secrets_masker import redact

    shown = redact({"auth_env": "NAME", "sentinel_auth_env": "NAME", "sentinel_login": "NAME", "password_env": "NAME"})

    assert shown == {
        "auth_env": "NAME",
        "sentinel_auth_env": "NAME",
        "sentinel_login": "NAME",
        "password_env": "***",
    }


@pytest.mark.parametrize(
    ("uri", "url"),
    [
        ("sluicegate://cache:6380/2", "redis://cache:6380/2"),
        ("sluicegate://%2Frun%2Fredis.sock", "unix:///run/redis.sock"),
        ("sluicegate://a%2Cb:26379/?sentinel_service=orders&auth_env=P", "redis+sentinel://a:26379,b:26379/orders/0?password_env=P"),
        ("sluicegate://a%3A1%2Cb%3A2/?cluster=true&ssl=true", "rediss+cluster://a:1,b:2"),
        ("sluicegate:///?url=embedded%3A%2F%2F%2Fvar%2Forders", "embedded:///var/orders"),
    ],
)  # fmt: skip
def test_uris_name_every_topology(uri: str, url: str) -> None:
    given = Connection.from_uri(uri, conn_id="orders")

    assert connection_url(given) == url
    assert connection_url(Connection.from_uri(given.get_uri(), conn_id="orders")) == url


@pytest.mark.usefixtures("airflow_deployment")
def test_the_documented_commands_add_the_same_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.cli.cli_parser import get_parser
    from airflow.models import Connection as StoredConnection
    from airflow.utils.session import create_session

    page = (ROOT / "docs" / "airflow.md").read_text()
    section = page.partition("### How to add one\n")[2].partition("\n#")[0]
    (block,) = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    words = shlex.split(block.replace("\\\n", " "))
    first, second, third = words.index("airflow"), words.index("airflow", 1), words.index("export")
    (variable, _, text) = words[third + 1].partition("=")
    monkeypatch.setenv(variable, text)
    found = [connection_url(Connection.get("sluicegate_default"))]
    for number, command in enumerate((words[first:second], words[second:third])):
        command[3] = f"documented_{number}"
        arguments = get_parser().parse_args(command[1:])
        arguments.func(arguments)
        with create_session() as session:
            row = session.query(StoredConnection).filter_by(conn_id=command[3]).one()
            session.delete(row)
            kept = {name: getattr(row, name) for name in ("conn_type", "host", "port", "login", "schema", "extra")}
        found.append(connection_url(Connection(conn_id="orders", **kept)))

    assert found == ["redis+sentinel://a:26379,b:26379/orders/0?password_env=QUEUE_PASSWORD"] * 3


@pytest.mark.usefixtures("airflow_deployment")
def test_a_connection_of_the_rest_api_is_read() -> None:
    """The API stores its body as this model does."""
    from airflow.api_fastapi.core_api.datamodels.connections import ConnectionBody
    from airflow.models import Connection as StoredConnection

    extra = json.dumps({"sentinel_service": "orders", "auth_env": "QUEUE_PASSWORD"})
    body = ConnectionBody(connection_id="orders", conn_type="sluicegate", host="a,b", extra=extra)
    row = StoredConnection(**body.model_dump(by_alias=True))

    given = Connection(conn_id="orders", conn_type=row.conn_type, host=row.host, extra=row.extra)
    assert connection_url(given) == "redis+sentinel://a:26379,b:26379/orders/0?password_env=QUEUE_PASSWORD"
