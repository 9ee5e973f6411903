"""Read when messages fall due from arguments that may be rendered templates."""

from __future__ import annotations

from datetime import datetime

from sluicegate.errors import ConfigurationError, OptionTypeError

__all__ = ["delay_of", "due_time_of"]


def delay_of(value: object) -> float:
    """
    Return ``delay_seconds`` as a number; a rendered template is text.

    :raises ConfigurationError: a text that is no number; the queue checks the number itself.
    """
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            raise ConfigurationError(f"delay_seconds must be a number of seconds, not {_shown(value)}") from None
    return value  # type: ignore[return-value]


def due_time_of(value: object) -> datetime | None:
    """
    Return ``due_at`` as a datetime, which has a zone unless the text had none; a rendered template is text.

    :raises ConfigurationError: neither a datetime nor a text in ISO 8601; the queue refuses one without a zone.
    """
    if value is None or isinstance(value, datetime):
        return value
    if not isinstance(value, str):
        raise OptionTypeError(f"due_at must be a datetime with a zone or its text in ISO 8601, not {value!r}")
    try:
        return datetime.fromisoformat(value.strip())
    except ValueError:
        raise ConfigurationError(
            f"due_at must be a time in ISO 8601 with a zone, such as 2030-01-31T06:00:00+00:00, not {_shown(value)}"
        ) from None


def _shown(value: str) -> str:
    if value.strip() in ("", "None"):
        return f"{value!r}; if it is a template, it rendered to nothing"
    return repr(value)
