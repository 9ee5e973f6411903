"""Find the messages that a task was given: an iterable, or what a function returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from airflow_provider_sluicegate.compat import keyword_arguments
from sluicegate.bulk.reader import check_messages
from sluicegate.errors import ConfigurationError

__all__ = ["iterable_of"]


def iterable_of(messages: Any, context: Mapping[str, Any], what: str = "messages") -> Iterable[Any]:
    """
    Return the messages that a task was given: an iterable as it is, or what a function returns.

    :param messages: the argument of the operator.
    :param context: of the task, whose entries a function gets by the names of its parameters.
    :param what: the name of the argument.
    :raises ConfigurationError: it is no iterable of messages.
    """
    if callable(messages):
        messages = messages(**keyword_arguments(messages, context))
    if isinstance(messages, str):
        raise ConfigurationError(
            f"{what} must be an iterable of {what}, or a function that returns one, not a str; a template of a task's "
            f"output is a text, so give {what}=task.output"
        )
    return check_messages(messages, what)
