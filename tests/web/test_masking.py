"""What masks hide is shown nowhere: neither in payloads and headers, nor in errors, searches and exports."""

from __future__ import annotations

import json

import pytest

from sluicegate.errors import ConfigurationError
from sluicegate.web.masking import HIDDEN, Masks
from tests.support.flavours import MakeQueue
from tests.web.conftest import MakeApp, Visitor

CARD = {"card": {"number": "4111-1111", "name": "Ann"}, "user": {"Password": "hunter22"}, "n": 1}


@pytest.mark.parametrize(
    ("masks", "payload", "shown"),
    [
        (["card.number"], CARD, {**CARD, "card": {"number": HIDDEN, "name": "Ann"}}),
        (["CARD"], CARD, {**CARD, "card": HIDDEN}),
        (["*.password"], CARD, {**CARD, "user": {"Password": HIDDEN}}),
        (["*.password"], {"password": 1}, {"password": HIDDEN}),
        (["password"], {"a": {"password": 1}}, {"a": {"password": 1}}),
        (["lines.price"], {"lines": [{"price": 1, "n": 1}]}, {"lines": [{"price": HIDDEN, "n": 1}]}),
        (["users.*.email"], {"users": {"ann": {"email": "a", "n": 1}}}, {"users": {"ann": {"email": HIDDEN, "n": 1}}}),
        (["card.number"], {"card.number": 1, "card": {"n": 2}}, {"card.number": HIDDEN, "card": {"n": 2}}),
        (["*.card.number"], [{"card": {"number": 1}}], [{"card": {"number": HIDDEN}}]),
    ],
)  # fmt: skip
def test_a_mask_hides_what_its_path_names(masks: list[str], payload: object, shown: object) -> None:
    masked = Masks(masks).payload(json.dumps(payload).encode())

    assert masked.format == "json"
    assert json.loads(masked.text) == shown


@pytest.mark.parametrize(
    "payload",
    [b"card=4111-1111", b'"4111-1111"', b"\xff\xfe", b"[" * 100_000, b'{"a": "\xff"}', b"{" + b" " * 5_000_000],
)
def test_a_payload_to_which_masks_cannot_be_applied_is_not_shown(payload: bytes) -> None:
    masked = Masks(["card.number"]).payload(payload)

    assert (masked.text, masked.format, masked.hidden) == ("", "hidden", 1)
    assert Masks().payload(payload[:20]).text != ""


def test_names_that_json_escapes_and_names_that_come_twice_are_hidden() -> None:
    masked = Masks(["*.password"]).payload(b'{"pass\\u0077ord": "one-secret", "password": "two-secret"}')

    assert "secret" not in masked.text


def test_masks_that_cannot_work_are_refused() -> None:
    for wrong in ("", "card..number", ".card", "card."):
        with pytest.raises(ConfigurationError, match="empty part"):
            Masks([wrong])
    with pytest.raises(ConfigurationError, match="put the one pattern into a list"):
        Masks("card")


def test_what_is_hidden_is_shown_nowhere_else(make_queue: MakeQueue, make_app: MakeApp) -> None:
    queue = make_queue("orders", get_deduplication_key="{card.number}")
    queue.publish(CARD, headers={"Authorization": "Bearer abc-def", "trace": "see hunter22"})
    with queue.claim() as lease:
        lease.bury(list(lease), error=ValueError("the card 4111-1111 of hunter22 was refused"))
    masks = ["card.number", "*.password", "headers.authorization"]
    visitor = Visitor(make_app(masks=masks))
    assert visitor.get("/api/session").json()["masks"] is True

    (dead,) = visitor.get("/api/messages?queue=orders&state=dead").json()["messages"]
    export = visitor.get("/api/dead/export?queue=orders")

    assert dead["masked"] is True
    assert dead["headers"]["Authorization"] == HIDDEN
    assert dead["deduplication_key"] == HIDDEN
    assert dead["error"] == f"the card {HIDDEN} of {HIDDEN} was refused"
    for secret in ("4111-1111", "hunter22", "abc-def"):
        assert secret not in json.dumps(dead, ensure_ascii=False)
        assert secret not in export.text
        found = visitor.get("/api/messages", params={"queue": "orders", "state": "dead", "search": secret})
        assert found.json()["messages"] == []
    assert visitor.get("/api/messages?queue=orders&state=dead&search=refused").json()["messages"] == [dead]


def test_payloads_of_jobs_are_masked(make_app: MakeApp) -> None:
    visitor = Visitor(make_app(masks=["*.password"]))
    visitor.ok("/api/publish?jobs=mails", {"payload": {"password": "hunter22", "to": "a"}})
    (job,) = visitor.get("/api/jobs?jobs=mails&status=waiting").json()["jobs"]

    assert json.loads(job["payload"]) == {"password": HIDDEN, "to": "a"}
