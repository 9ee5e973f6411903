"""The exceptions: their bases are what callers of other libraries catch, and they can be sent between processes."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

import sluicegate
from sluicegate import _server_errors, errors
from sluicegate._redis import error_mapping
from sluicegate.core.keys import QueueKeys
from sluicegate.core.transitions.publish import Batch, publish_call

EXTRA: dict[str, dict[str, Any]] = {
    "DrainFailedError": {"summary": "s"},
    "LeaseEndedError": {"lease_id": "l", "acked": 1, "returned": 0, "buried": 0},
    "JobCancelledError": {"job_id": "j"},
    "JobFailedError": {"job_id": "j", "attempts": 3, "error_type": "OSError", "error": "timeout"},
    "JobNotFoundError": {"job_id": "j"},
    "LeaseLostError": {"lease_id": "l", "lost": [1], "settled": [2]},
    "NotDurableError": {"report": "r"},
    "DurabilityAccessError": {"report": "r"},
    "PayloadTooDeepError": {"limit": 1},
    "PayloadTooLargeError": {"size": 2, "limit": 1},
    "PublishUnknownError": {"ids": ["a-0"]},
}


def make(name: str) -> errors.RedisMessageQueueError:
    made = getattr(errors, name)("text", **EXTRA.get(name, {}))
    assert isinstance(made, errors.RedisMessageQueueError)
    return made


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("ConfigurationError", ValueError),
        ("GatewayContractError", TypeError),
        ("LuaScriptError", ResponseError),
        ("MalformedStoredMessageError", ValueError),
        ("PayloadTooDeepError", ValueError),
        ("PayloadTooLargeError", ValueError),
        ("OptionTypeError", TypeError),
        ("OptionTypeError", errors.ConfigurationError),
        ("RedisAccessError", RedisError),
        ("RedisMemoryError", ResponseError),
        ("RedisRefusedError", RedisConnectionError),
        ("RedisRefusedError", ResponseError),
        ("RedisUnavailableError", RedisConnectionError),
        ("RetryBudgetExhaustedError", RedisConnectionError),
        ("WrongKeyTypeError", ResponseError),
    ],
)
def test_bases_that_callers_rely_on(name: str, base: type[Exception]) -> None:
    assert isinstance(make(name), base)


@pytest.mark.parametrize("name", errors.__all__)
def test_no_error_of_ours_is_retried_as_one_of_redis_py(name: str) -> None:
    """Some are both."""
    assert not error_mapping.is_transient(make(name))
    assert not error_mapping.is_refusal(make(name))


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_is_ours_documented_and_exported(name: str) -> None:
    assert issubclass(getattr(errors, name), errors.RedisMessageQueueError)
    assert getattr(errors, name).__doc__.split("\n")[0].endswith((".", ";", ","))
    assert getattr(sluicegate, name) is getattr(errors, name)
    assert name in sluicegate.__all__


def test_every_error_of_the_module_is_listed() -> None:
    found = {**vars(errors), **vars(_server_errors)}
    defined = {name for name, value in found.items() if isinstance(value, type) and value.__module__ == errors.__name__}
    assert {name for name in defined if not name.startswith("_")} == set(errors.__all__)


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_travels_to_another_process(name: str) -> None:
    error = make(name)
    error.add_note("noted")
    read = pickle.loads(pickle.dumps(error))  # noqa: S301  (made a line above)
    assert type(read) is type(error)
    assert str(read) == str(error) == "text"
    assert vars(read) == vars(error)


def test_prepared_calls_stay_behind_when_an_unknown_publish_travels() -> None:
    call = publish_call(QueueKeys("orders"), Batch(b"b" * 16, [b"part"]), age_seconds=0)
    read = pickle.loads(pickle.dumps(errors.PublishUnknownError("text", ids=["a"], calls=[call])))  # noqa: S301
    assert (read.ids, read.calls) == (("a",), ())
