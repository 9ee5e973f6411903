"""The form of a connection for Airflow 3.1, made from the metadata that later versions read."""

from __future__ import annotations

from typing import Any

from airflow_provider_sluicegate.get_provider_info import get_provider_info

__all__ = ["field_behaviour", "form_fields"]


def form_fields() -> dict[str, Any]:
    """Return the fields of the extra. Only the API server of Airflow 3.1 calls this, and has or plays WTForms."""
    from wtforms import BooleanField, IntegerField, StringField
    from wtforms.validators import Optional

    kinds = {"boolean": BooleanField, "integer": IntegerField, "string": StringField}
    return {
        name: kinds[field["schema"]["type"][0]](
            field["label"], validators=[Optional()], description=field["description"]
        )
        for name, field in _metadata()["conn-fields"].items()
    }


def field_behaviour() -> dict[str, Any]:
    """Return which standard fields are hidden, renamed or explained, by the keys of Airflow 3.1."""
    return {name.replace("-", "_"): value for name, value in _metadata()["ui-field-behaviour"].items()}


def _metadata() -> dict[str, Any]:
    (connection_type,) = get_provider_info()["connection-types"]
    found: dict[str, Any] = connection_type
    return found
