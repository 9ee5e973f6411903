"""The page of the queues inside Airflow asks Airflow who may look and who may act."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.routing import Mount

from airflow_provider_sluicegate.get_provider_info import get_provider_info
from airflow_provider_sluicegate.links.queue import QueueLink
from airflow_provider_sluicegate.operators.consume import RedisQueueConsumeOperator
from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator
from airflow_provider_sluicegate.plugins import queue_ui
from airflow_provider_sluicegate.plugins.settings import read_settings
from airflow_provider_sluicegate.plugins.tasks import TaskPlace, place_of_fields
from airflow_provider_sluicegate.sensors.jobs import RedisJobSensor
from sluicegate import RedisMessageQueue
from sluicegate.errors import ConfigurationError
from sluicegate.gates import Gate
from sluicegate.place import Place
from tests.airflow.conftest import Connect
from tests.airflow.deployment import Deployment

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("airflow_deployment")]

PAGE = "/sluicegate/connections/sluicegate_default"
SITE = {"Origin": "http://testserver"}


@pytest.fixture(scope="module")
def api_server(airflow_deployment: Deployment) -> Iterator[FastAPI]:
    """Yield Airflow's own application with its plugins, where users have roles."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS", "False")
        from airflow.api_fastapi.app import create_app, purge_cached_app

        purge_cached_app()
        yield create_app()
        purge_cached_app()


Browser = Callable[[str], TestClient]


@pytest.fixture
def browser(api_server: FastAPI) -> Browser:
    """Return a function that makes the browser of a user who is logged in with a role."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    def log_in(role: str) -> TestClient:
        user = SimpleAuthManagerUser(username=role.lower(), role=role)
        return TestClient(api_server, cookies={"_token": get_auth_manager().generate_jwt(user)})

    return log_in


def post(browser: TestClient, path: str, csrf: str, **headers: str) -> Any:
    return browser.post(path, json={}, headers={"X-Sluicegate-CSRF": csrf, **SITE, **headers})


@pytest.mark.parametrize(
    "path",
    [
        "/sluicegate/",
        "/sluicegate/task/dag/run/task/-1",
        "/sluicegate/connections/sluicegate_default",
        f"{PAGE}/",
        f"{PAGE}/static/main.js",
        f"{PAGE}/api/session",
        f"{PAGE}/api/overview",
        f"{PAGE}/api/events",
        f"{PAGE}/healthz",
        "/sluicegate/connections/unknown/",
        "/sluicegate/none",
    ],
)
def test_a_stranger_sees_nothing(path: str, api_server: FastAPI) -> None:
    refused = TestClient(api_server).get(path)

    assert refused.status_code in {401, 404} if path == "/sluicegate/none" else refused.status_code == 401, refused.text
    assert "default-src 'none'" in refused.headers["content-security-policy"]
    assert TestClient(api_server).post(path, json={}).status_code in {401, 405, 404}


def test_every_route_of_the_plugin_asks_for_a_user(api_server: FastAPI) -> None:
    from airflow_provider_sluicegate.plugins.application import create_plugin_app, router

    assert any(isinstance(route, Mount) and route.path == "/sluicegate" for route in api_server.routes)
    app = create_plugin_app()
    routes = {route.path for route in router.routes}
    assert {route.path for route in app.routes} == routes
    for route in app.routes:
        asked = [each.call.__qualname__ for each in route.dependant.dependencies]
        assert "requires_access_view.<locals>.inner" in asked, route.path


def test_a_viewer_looks_and_an_operator_acts(queue: RedisMessageQueue, browser: Browser) -> None:
    queue.publish_many(["a", "b"])
    viewer, operator, admin = browser("VIEWER"), browser("OP"), browser("ADMIN")

    seen = viewer.get(f"{PAGE}/api/place", params={"queue": queue.name})
    assert seen.json()["row"]["depth"]["ready"] == 2
    session = viewer.get(f"{PAGE}/api/session").json()
    assert session["may_act"] is False
    refused = post(viewer, f"{PAGE}/api/pause?queue={queue.name}", session["csrf"])
    assert refused.status_code == 403
    assert not queue.depth().paused

    for user, verb in ((operator, "pause"), (admin, "resume")):
        session = user.get(f"{PAGE}/api/session").json()
        assert session["may_act"] is True
        done = post(user, f"{PAGE}/api/{verb}?queue={queue.name}", session["csrf"])
        assert done.json()["changed"] is True


def test_a_write_from_another_site_is_refused_although_airflow_would_take_its_cookie(
    queue: RedisMessageQueue, browser: Browser
) -> None:
    admin = browser("ADMIN")
    csrf = admin.get(f"{PAGE}/api/session").json()["csrf"]
    path = f"{PAGE}/api/publish?queue={queue.name}"

    assert post(admin, path, csrf, Origin="https://evil.example").status_code == 403
    assert post(admin, path, csrf, **{"Sec-Fetch-Site": "cross-site", "Origin": "null"}).status_code == 403
    assert post(admin, path, "").status_code == 403
    of_viewer = browser("VIEWER").get(f"{PAGE}/api/session").json()["csrf"]
    assert post(admin, path, of_viewer).status_code == 403
    assert queue.depth().published_total == 0


def test_scripts_use_airflows_tokens(queue: RedisMessageQueue, browser: Browser, api_server: FastAPI) -> None:
    headers = {"Authorization": f"Bearer {browser('OP').cookies['_token']}"}
    script = TestClient(api_server, headers=headers)

    csrf = script.get(f"{PAGE}/api/session").json()["csrf"]
    body = {"payload": {"n": 1}}
    done = script.post(f"{PAGE}/api/publish?queue={queue.name}", json=body, headers={"X-Sluicegate-CSRF": csrf})

    assert done.json()["accepted"] == 1
    assert [message.json() for message in queue.peek()] == [{"n": 1}]


def test_the_index_leads_to_the_only_page_and_a_connection_without_one_is_explained(
    queue: RedisMessageQueue, browser: Browser
) -> None:
    viewer = browser("VIEWER")

    led = viewer.get("/sluicegate/", follow_redirects=False)
    assert (led.status_code, led.headers["location"]) == (303, "./connections/sluicegate_default/")
    assert viewer.get(PAGE).url.path == f"{PAGE}/"
    unknown = viewer.get("/sluicegate/connections/other/api/overview")
    assert unknown.status_code == 404
    assert "name it in [sluicegate] ui_connections" in unknown.json()["error"]["message"]


def test_a_connection_that_is_not_defined_shows_no_password(
    connect: Connect, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(host="localhost", password="secret-word", extra={"no_such_key": 1})
    from airflow_provider_sluicegate.plugins.application import create_plugin_app

    monkeypatch.setenv("AIRFLOW__SLUICEGATE__UI_CONNECTIONS", "sluicegate_default,missing")
    other = TestClient(create_plugin_app(), cookies=browser("ADMIN").cookies)

    wrong = other.get("/connections/sluicegate_default/api/overview")
    missing = other.get("/connections/missing/api/overview")

    assert wrong.status_code == 400
    assert "no_such_key" in wrong.text
    assert "secret-word" not in wrong.text
    assert missing.status_code == 404
    assert "connection 'missing' cannot be used" in missing.json()["error"]["message"]


def test_a_changed_connection_gets_a_new_page(
    embedded_url: str, queue: RedisMessageQueue, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_provider_sluicegate.plugins import application

    pages = application.Pages(read_settings())
    first = pages.of("sluicegate_default")
    assert pages.of("sluicegate_default") is first
    connect(extra={"url": "redis://localhost:1/0"})
    assert pages.of("sluicegate_default") is first
    monkeypatch.setattr(application, "_LOOK_AGAIN_SECONDS", 0.0)
    assert pages.of("sluicegate_default") is not first
    pages.close()


def test_the_configuration_says_what_the_page_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = read_settings()
    assert (plain.connections, plain.is_read_only, plain.masks, plain.gates) == (("sluicegate_default",), False, (), {})
    gates = {"orders": {"min_ready": 5}, "events/billing": {"soon": {"max_age_seconds": 60}, "many": {"min_ready": 9}}}
    for name, value in {
        "UI_CONNECTIONS": "one, two",
        "UI_READ_ONLY": "True",
        "UI_MASKS": "*.password, card.number",
        "UI_GATES": json.dumps(gates),
    }.items():
        monkeypatch.setenv(f"AIRFLOW__SLUICEGATE__{name}", value)

    given = read_settings()

    assert (given.connections, given.is_read_only, given.masks) == (("one", "two"), True, ("*.password", "card.number"))
    assert given.gates == {
        "orders": Gate(min_ready=5),
        "events/billing": {"soon": Gate(max_age_seconds=60), "many": Gate(min_ready=9)},
    }
    for wrong in ("[1]", "{", '{"orders": 5}', '{"orders": {"min_redy": 5}}'):
        monkeypatch.setenv("AIRFLOW__SLUICEGATE__UI_GATES", wrong)
        with pytest.raises(ConfigurationError, match="ui_gates"):
            read_settings()


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"queue_name": "orders", "redis_conn_id": "c"}, TaskPlace("c", Place("orders"))),
        ({"queue_name": None, "stream": "s", "group": "g"}, TaskPlace("sluicegate_default", Place("s", True, "g"))),
        ({"stream": "s", "queue_name": "None"}, TaskPlace("sluicegate_default", Place("s", stream=True))),
        ({"queue_name": "mails", "payloads": "[]"}, TaskPlace("sluicegate_default", Place("mails"), is_jobs=True)),
        ({"bash_command": "ls"}, None),
        ({"queue_name": {"__var": 1}}, None),
        ({"queue_name": "a", "stream": "b"}, None),
    ],
)
def test_the_place_of_a_task_is_read_from_its_rendered_arguments(fields: dict[str, Any], found: TaskPlace) -> None:
    assert place_of_fields(fields) == found


def test_a_task_links_to_the_page_of_its_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    link = QueueLink()
    key: Any = None
    publish = RedisQueuePublishOperator(task_id="a", queue_name="orders & more", messages=[])
    consume = RedisQueueConsumeOperator(task_id="b", stream="events", group="billing")
    jobs = RedisJobSensor(task_id="c", queue_name="mails", job_ids=["1"])
    assert all(isinstance(task.operator_extra_links[0], QueueLink) for task in (publish, consume, jobs))

    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.org/team/")
    base = "https://airflow.example.org/team/sluicegate/connections/sluicegate_default"
    assert link.get_link(publish, ti_key=key) == f"{base}/#queue=orders+%26+more"
    assert link.get_link(consume, ti_key=key) == f"{base}/#stream=events&group=billing"
    assert link.get_link(jobs, ti_key=key) == f"{base}/#jobs=mails"
    publish.redis_conn_id = "without_page"
    assert link.get_link(publish, ti_key=key) == ""
    monkeypatch.setenv("AIRFLOW__SLUICEGATE__UI_ENABLED", "False")
    assert link.get_link(consume, ti_key=key) == ""


def test_the_plugin_is_listed_with_its_views(browser: Browser) -> None:
    plugins = browser("ADMIN").get("/api/v2/plugins").json()["plugins"]
    (found,) = [plugin for plugin in plugins if plugin["name"] == "sluicegate"]

    assert [(view["destination"], view["href"]) for view in found["external_views"]] == [
        ("nav", "/sluicegate/"),
        ("task_instance", "/sluicegate/task/{DAG_ID}/{RUN_ID}/{TASK_ID}/{MAP_INDEX}"),
    ]
    assert found["fastapi_apps"][0]["url_prefix"] == "/sluicegate"
    assert get_provider_info()["config"]["sluicegate"]["options"].keys() == {
        "ui_enabled",
        "ui_connections",
        "ui_read_only",
        "ui_masks",
        "ui_gates",
    }


def test_a_disabled_page_is_not_mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__SLUICEGATE__UI_ENABLED", "False")
    spec = importlib.util.spec_from_file_location("loaded_anew", queue_ui.__file__)
    assert spec is not None
    assert spec.loader is not None
    anew = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(anew)

    assert (anew.SluicegatePlugin.fastapi_apps, anew.SluicegatePlugin.external_views) == ([], [])
    assert queue_ui.SluicegatePlugin.fastapi_apps
