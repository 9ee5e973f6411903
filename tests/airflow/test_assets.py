"""Queues as Airflow assets, through Airflow's own checks of URIs."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import pytest
from airflow.sdk import Asset

from airflow_provider_sluicegate.assets.redis_queue import convert_asset_to_openlineage, create_asset, sanitize_uri
from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
from tests.airflow.conftest import PASSWORD, Connect

pytestmark = pytest.mark.airflow

NAMES = ["orders", "orders/eu", "größe:1 %2F?x#y@z", ".", "..", "a+b&c=d", "Orders", "//", "a\\b\n"]


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_a_queue_survives_the_way_through_an_asset(name: str, connect: Connect) -> None:
    connect("cache.eu", host="cache")

    asset = create_asset(queue_name=name, redis_conn_id="cache.eu", extra={"team": "shop"})

    # Airflow keeps what it was given, so what its own check of the URI returns is the same.
    assert asset.normalized_uri == asset.uri == Asset(uri=asset.uri).uri
    assert asset.extra == {"team": "shop"}
    dataset = convert_asset_to_openlineage(asset, None)
    assert (dataset.namespace, dataset.name) == ("redis://cache:6379", name)


def test_the_uri_names_the_connection_and_the_queue() -> None:
    assert create_asset(queue_name="orders").uri == "sluicegate://sluicegate_default/orders"
    assert create_asset(queue_name="a/b", redis_conn_id="x:1/y").uri == "sluicegate://x%3A1%2Fy/a%2Fb"


def test_making_an_asset_looks_no_connection_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(conn_id: str) -> None:
        raise AssertionError(conn_id)

    monkeypatch.setattr(RedisQueueHook, "get_connection", refuse)
    create_asset(queue_name="orders", redis_conn_id="no_such_connection")


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("sluicegate://someone@cache/orders", "names a user; remove that"),
        ("sluicegate://cache:6379/orders", "names the server 'cache:6379'; write the id of its Airflow connection"),
        ("sluicegate://cache", "is not the URI of a queue, which is sluicegate://<connection id>/<queue>"),
        ("sluicegate://cache/", "is not the URI of a queue"),
        ("sluicegate://cache/%20", "is not the URI of a queue"),
        ("sluicegate:///orders", "is not the URI of a queue"),
        ("sluicegate://cache/orders/eu", "create_asset(queue_name=…) makes it"),
        ("sluicegate://cache/orders?db=1", "is not the URI of a queue"),
    ],
)
def test_other_uris_are_refused_by_airflow_with_the_reason(uri: str, words: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011  (the words are compared below)
        Asset(uri=uri)

    assert words in str(refused.value)
    assert "someone" not in str(refused.value)


@pytest.mark.parametrize(
    "arguments", [{"queue_name": ""}, {"queue_name": " "}, {"queue_name": "q", "redis_conn_id": ""}]
)
def test_a_blank_name_is_refused(arguments: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"(queue name|redis_conn_id) is blank; give"):
        create_asset(**arguments)


def test_a_password_never_stays_in_a_uri() -> None:
    with pytest.warns(UserWarning, match="should not contain a password"):
        asset = Asset(uri="sluicegate://someone:s3cret@cache/orders")

    assert asset.uri == "sluicegate://cache/orders"
    with pytest.raises(ValueError, match="names a user"):
        sanitize_uri(urlsplit("sluicegate://someone:s3cret@cache/orders"))


@pytest.mark.parametrize(
    ("fields", "namespace"),
    [
        ({"host": "cache", "login": "someone", "password": PASSWORD}, "redis://cache:6379"),
        ({"host": "cache", "port": 7000, "extra": {"db": 2, "ssl": True}}, "redis://cache:7000/2"),
        ({"host": "::1"}, "redis://[::1]:6379"),
        ({"extra": {"url": "redis://cache?db=3"}}, "redis://cache:6379/3"),
        ({"extra": {"url": "redis://:pw@/0"}}, "redis://localhost:6379"),
        ({"host": "a,b:7000", "extra": {"cluster": True}}, "redis+cluster://a:6379,b:7000"),
        (
            {"host": "a,b", "extra": {"sentinel_service": "orders", "db": 1}},
            "redis+sentinel://a:26379,b:26379/orders/1",
        ),
        ({"host": "a", "extra": {"sentinel_service": "orders"}}, "redis+sentinel://a:26379/orders"),
        ({"host": "/run/redis.sock", "extra": {"db": 1}}, "unix:///run/redis.sock/1"),
        ({"extra": {"url": "embedded:///data/0"}}, "embedded:///data/0"),
    ],
)
def test_the_namespace_in_openlineage_is_the_server(connect: Connect, fields: dict[str, Any], namespace: str) -> None:
    connect(**fields)

    found = convert_asset_to_openlineage(create_asset(queue_name="orders"), None)

    assert (found.namespace, found.name) == (namespace, "orders")
    assert PASSWORD not in json.dumps([found.namespace, found.name])


def test_the_hook_that_reports_an_asset_says_where_it_is(connect: Connect) -> None:
    connect("one", host="one")
    connect("two", host="two")

    found = convert_asset_to_openlineage(create_asset(queue_name="q", redis_conn_id="one"), RedisQueueHook("two"))

    assert found.namespace == "redis://two:6379"


@pytest.mark.usefixtures("airflow_deployment")
def test_airflow_finds_the_scheme_its_factory_and_its_converter() -> None:
    try:
        from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime as Manager
    except ImportError:  # Airflow 3.1
        from airflow.providers_manager import ProvidersManager as Manager  # type: ignore[assignment]

    manager = Manager()
    assert manager.asset_factories["sluicegate"] is create_asset
    assert manager.asset_uri_handlers["sluicegate"] is sanitize_uri
    assert manager.asset_to_openlineage_converters["sluicegate"] is convert_asset_to_openlineage
