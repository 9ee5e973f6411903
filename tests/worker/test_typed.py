"""Typed payloads: a handler gets a model, and a payload that does not fit is buried with its path."""

from __future__ import annotations

import logging
from enum import Enum
from typing import Any

import msgspec
import pydantic
import pytest

from sluicegate import InvalidPayloadError, QueueEvent
from sluicegate.handling.typed import model_reader
from tests.support.flavours import MakeQueue
from tests.worker.conftest import MakeWorker


class Line(pydantic.BaseModel):
    sku: str
    quantity: int


class Order(pydantic.BaseModel):
    order_id: int
    lines: list[Line] = []

    @pydantic.field_validator("order_id")
    @classmethod
    def refuse_zero(cls, value: int) -> int:
        if value == 0:
            raise ValueError(f"order {value} of secret-customer")
        if value == 13:
            raise RuntimeError("the validator itself is broken")
        return value


class Colour(Enum):
    RED = "red"


class Item(msgspec.Struct):
    sku: str
    quantity: int


class Parcel(msgspec.Struct, forbid_unknown_fields=True):
    parcel_id: int
    items: list[Item] = []
    colour: Colour = Colour.RED


def test_a_handler_gets_the_model_that_its_annotation_names(queue: Any, make_worker: MakeWorker) -> None:
    worker, got = make_worker(queue), []

    @worker.handler("order")
    def on_order(order: Order) -> None:
        got.append(order)

    @worker.handler("parcel")
    def on_parcel(parcel: Parcel) -> None:
        got.append(parcel)

    queue.publish({"order_id": 7, "lines": [{"sku": "a", "quantity": 2}]}, headers={"type": "order"})
    queue.publish({"parcel_id": 8}, headers={"type": "parcel"})

    assert worker.run_once().handled + worker.run_once().handled == 2
    assert got == [Order(order_id=7, lines=[Line(sku="a", quantity=2)]), Parcel(parcel_id=8)]


def test_a_handler_gets_the_model_that_it_was_registered_with(queue: Any, make_worker: MakeWorker) -> None:
    worker, got = make_worker(queue), []
    worker.register("order", got.append, model=Order)
    queue.publish({"type": "order", "order_id": "7"})

    assert worker.run_once().handled == 1
    assert got == [Order(order_id=7)]


@pytest.mark.parametrize(
    ("model", "payload", "error", "paths"),
    [
        (Order, {"order_id": 1, "lines": [{"sku": "a"}]}, "no Order: $.lines[0].quantity: missing",
         ("$.lines[0].quantity",)),
        (Order, {"order_id": "secret"}, "no Order: $.order_id: int_parsing", ("$.order_id",)),
        (Order, {"order_id": 0}, "no Order: $.order_id: value_error", ("$.order_id",)),
        (Order, "secret", "no Order: $: json_invalid", ("$",)),
        (Order, ["secret"], "no Order: $: model_type", ("$",)),
        (Parcel, {"parcel_id": 1, "items": [{"sku": "a"}]}, "no Parcel: $.items[0].quantity: missing field",
         ("$.items[0].quantity",)),
        (Parcel, {"parcel_id": "secret"}, "no Parcel: $.parcel_id: Expected `int`, got `str`", ("$.parcel_id",)),
        (Parcel, {"parcel_id": 1, "colour": "secret"}, "no Parcel: $.colour: invalid value", ("$.colour",)),
        (Parcel, {"parcel_id": 1, "more": "secret"}, "no Parcel: $.more: unknown field", ("$.more",)),
        (Parcel, "secret", "no Parcel: $: not JSON", ("$",)),
        (Parcel, b"\xffsecret", "no Parcel: $: not JSON", ("$",)),
    ],
)  # fmt: skip
def test_a_payload_that_does_not_fit_is_buried_with_its_path_and_without_its_values(
    make_queue: MakeQueue,
    make_worker: MakeWorker,
    caplog: pytest.LogCaptureFixture,
    model: type,
    payload: Any,
    error: str,
    paths: tuple[str, ...],
) -> None:
    caplog.set_level(logging.DEBUG, logger="sluicegate")
    events: list[QueueEvent] = []
    queue = make_queue(on_event=events.append)
    worker = make_worker(queue)
    worker.register("typed", lambda _: None, model=model)
    queue.publish(payload, headers={"type": "typed"})

    report = worker.run_once()
    assert (report.invalid, report.buried, report.claimed) == (1, 1, 1)
    (dead,) = queue.peek(1, state="dead")
    assert (dead.reason, dead.error_type, dead.error) == (
        "invalid_payload", "InvalidPayloadError", f"the payload is {error}"
    )  # fmt: skip
    (event,) = [event for event in events if event.operation == "handle"]
    assert (str(event.outcome), event.message_type) == ("refused", "typed")
    assert isinstance(event.error, InvalidPayloadError)
    assert event.error.paths == paths
    texts = [dead.error, *caplog.messages, *(f"{event!r} {event.error}" for event in events)]
    assert not any("secret" in str(text) for text in texts)


def test_the_code_of_a_model_that_fails_is_a_failure_and_no_burial(queue: Any, make_worker: MakeWorker) -> None:
    worker = make_worker(queue)
    worker.register("order", lambda _: None, model=Order)
    queue.publish({"type": "order", "order_id": 13})

    assert worker.run_once().failed == 1
    assert queue.depth().delayed == 1


def test_many_problems_are_shortened() -> None:
    read = model_reader(Order)
    assert read is not None
    lines = msgspec.json.encode({"order_id": 1, "lines": [{}] * 4})
    with pytest.raises(
        InvalidPayloadError, match=r"(?m)quantity: missing; \$.lines\[2\].sku: missing; and 3 more$"
    ) as refused:
        read(lines)
    assert len(refused.value.paths) == 8


@pytest.mark.parametrize("model", [None, dict, int, "Order", Order(order_id=1), pydantic.BaseModel.model_validate])
def test_anything_else_is_no_model(model: object) -> None:
    assert model_reader(model) is None
