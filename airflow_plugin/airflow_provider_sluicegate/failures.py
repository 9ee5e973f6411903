"""Tell Airflow which errors another try cannot cure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow_provider_sluicegate.compat import AirflowFailException

__all__ = ["fail_at_once"]


@contextmanager
def fail_at_once() -> Iterator[None]:
    """
    Fail the task without a retry when the block raises an error that another try would meet again.

    Such errors are an argument, a connection or a payload that cannot work, and a group that does not exist. Others
    propagate, and Airflow tries again.

    :raises AirflowFailException: with the text of the error, which is its cause.
    """
    from sluicegate.errors import (
        ConfigurationError,
        GatewayContractError,
        GroupNotFoundError,
        PayloadTooDeepError,
        PayloadTooLargeError,
    )

    try:
        yield
    except (
        ConfigurationError,
        GatewayContractError,
        GroupNotFoundError,
        PayloadTooDeepError,
        PayloadTooLargeError,
    ) as error:
        raise AirflowFailException(str(error)) from error
