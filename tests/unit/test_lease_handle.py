"""A lease handle is read back as it was, and what is no handle is refused."""

from __future__ import annotations

from typing import Any

import pytest

from sluicegate import ConfigurationError, LeaseHandle

HANDLE = LeaseHandle("orders", "daily", "nonce:7", 0.1)


def test_it_is_read_back_as_it_was() -> None:
    assert LeaseHandle.from_json(HANDLE.to_json()) == HANDLE
    assert all(type(value) is str for value in HANDLE.to_dict().values())
    assert (HANDLE.nonce, HANDLE.opening) == (b"nonce", "7")


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"more": "1"}, "a lease handle has exactly queue, id, token, lease_seconds"),
        ({"lease_seconds": "long"}, "lease_seconds of a lease handle is a number"),
        ({"lease_seconds": "-1"}, "lease_seconds must be a number above 0"),
        ({"token": "nonce"}, "not one that lease.detach\\(\\) made"),
        ({"token": ":7"}, "not one that lease.detach\\(\\) made"),
        ({"id": 7}, "id of a lease handle is a str"),
    ],
)
def test_what_is_no_handle_is_refused(changed: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        LeaseHandle.from_dict({**HANDLE.to_dict(), **changed})


@pytest.mark.parametrize("text", ["", "[]", "7", "{}"])
def test_what_is_no_json_of_a_handle_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="a lease handle"):
        LeaseHandle.from_json(text)
