"""What differs between the versions of Airflow, on the version that runs this test."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from airflow.sdk import BaseHook, Connection

from airflow_provider_sluicegate import compat
from tests.airflow.conftest import Connect

pytestmark = pytest.mark.airflow


def test_a_function_gets_what_it_names_of_the_context() -> None:
    def takes_two(ds: str, *, run_id: str = "none") -> None: ...

    def takes_all(**context: Any) -> None: ...

    context = {"ds": "2026-01-01", "run_id": "r1", "other": 1}

    assert compat.keyword_arguments(takes_two, context) == {"ds": "2026-01-01", "run_id": "r1"}
    assert compat.keyword_arguments(takes_all, context) == context


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_connection_is_looked_up_without_a_synchronous_message_from_the_event_loop(
    asynchronous: bool, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect("orders", host="cache")
    if not asynchronous:
        monkeypatch.delattr(Connection, "aextra_dejson", raising=False)
    elif not hasattr(Connection, "aextra_dejson"):
        return  # the other half is what this version has

    synchronous = BaseHook.get_connection

    def refuse_in_a_loop(conn_id: str) -> Connection:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        return synchronous(conn_id)

    monkeypatch.setattr(BaseHook, "get_connection", staticmethod(refuse_in_a_loop))

    assert asyncio.run(compat.get_async_connection(BaseHook, "orders")).host == "cache"


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_secret_is_masked_from_an_event_loop(asynchronous: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk import log
    from airflow.sdk._shared.secrets_masker import redact

    if not asynchronous:
        monkeypatch.delattr(log, "amask_secret", raising=False)
    secret = f"s3cret-from-a-loop-{asynchronous}"

    asyncio.run(compat.amask_secret(secret))

    assert redact(f"it is {secret}") == "it is ***"


def test_features_that_only_newer_versions_have_are_asked_for() -> None:
    from airflow.triggers import base

    assert compat.has_shared_streams() == hasattr(base.BaseEventTrigger, "shared_stream_key")
    assert compat.renders_start_trigger() == hasattr(base.BaseTrigger, "render_template_fields")
