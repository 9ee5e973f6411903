"""Deduplication keys: from payloads to text, injectively, and never by anything but dict fields."""

from __future__ import annotations

import enum
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sluicegate.core.deduplication import compile_key_function, portable_key_source
from sluicegate.core.keys import QueueKeys
from sluicegate.core.publishing import Publishing
from sluicegate.errors import ConfigurationError
from tests.support.batches import one_call

PAYLOAD = {"tenant": "acme", "order": {"id": 7, "lines": [1]}, "none": None, "empty": "", "flag": True, "rate": 1.5}


@pytest.mark.parametrize(
    ("source", "key"),
    [
        (lambda payload: payload["tenant"], "acme"),
        ("tenant", "acme"),
        ("order.id", "7"),
        (["tenant", "order.id"], "acme:7"),
        (("tenant",), "acme"),
        (["tenant", "empty"], "acme:"),
        ("{tenant}:{order.id}", "acme:7"),
        ("{tenant}", "acme"),
        ("100% of {{{tenant}}} {order.id}%s", "100% of {acme} 7%s"),
        ("{tenant}{order.id}", "acme:7"),
        ("{tenant}{empty}", "acme:"),
        ("{tenant} of {order.id}", "acme of 7"),
        ("{tenant}no{order.id}", "acmeno7"),
        ("{tenant}%{order.id}", "acme%:7"),
        ("{tenant}42{order.id}", "acme42:7"),
    ],
)
def test_keys(source: Any, key: str) -> None:
    assert compile_key_function(source)(PAYLOAD) == key


@pytest.mark.parametrize(
    ("source", "error", "text"),
    [
        (lambda _: None, ConfigurationError, "returned None"),
        (lambda _: "", ConfigurationError, "returned ''"),
        (lambda _: 7, TypeError, "returned a int"),
        (lambda _: b"k", TypeError, "returned a bytes"),
        ("missing", ConfigurationError, "'missing' is missing"),
        ("order.missing", ConfigurationError, "'order.missing' is missing"),
        ("none", ConfigurationError, "'none' is null"),
        ("empty", ConfigurationError, "'empty' holds ''"),
        ("flag", TypeError, "'flag' must be a str or an int, not bool"),
        ("rate", TypeError, "'rate' must be a str or an int, not float"),
        ("order", TypeError, "'order' must be a str or an int, not dict"),
        ("tenant.id", ConfigurationError, "needs a dict at tenant, found str"),
        ("order.lines.0", ConfigurationError, "needs a dict at order.lines, found list"),
        (["tenant", "missing"], ConfigurationError, "'missing' is missing"),
        (["empty"], ConfigurationError, "''"),
        ("{tenant}:{none}", ConfigurationError, "'none' is null"),
        ("{tenant}:{order.missing}", ConfigurationError, "'order.missing' is missing"),
        ("{tenant.__class__}", ConfigurationError, "needs a dict at tenant, found str"),
        ("{order.__class__}", ConfigurationError, "'order.__class__' is missing"),
        ("{empty}", ConfigurationError, "''"),
    ],
)
def test_refused_at_publish(source: Any, error: type[Exception], text: str) -> None:
    function = compile_key_function(source)
    with pytest.raises(error) as caught:
        function(PAYLOAD)
    assert text in str(caught.value)
    assert "acme" not in str(caught.value), "an error never shows the payload"


class Hidden:
    secret = "s3cret"


@pytest.mark.parametrize("source", ["obj.secret", "{obj.secret}", "{obj.__class__}", ["obj.__class__"]])
def test_attributes_are_never_read(source: Any) -> None:
    with pytest.raises(ConfigurationError, match="needs a dict at obj, found Hidden"):
        compile_key_function(source)({"obj": Hidden()})


@pytest.mark.parametrize(
    "source",
    [
        "{a!r}", "{a:>3}", "{a[0]}", "{}", "{a.}", "{.a}", "{a b}", "{a", "a}", "no field {{}}", "", "a..b", "a b",
        "a[0]", [], ["a", ""], ["a", 1], 7, b"a", {"a"}, ["a!r"],
    ],
)  # fmt: skip
def test_refused_when_the_queue_is_made(source: Any) -> None:
    with pytest.raises(ConfigurationError):
        compile_key_function(source)


class Kind(enum.StrEnum):
    A = "a"


def test_fields_are_plain_text() -> None:
    with pytest.raises(TypeError, match="'kind' must be a str or an int, not Kind"):
        compile_key_function("kind")({"kind": Kind.A})
    with pytest.raises(ConfigurationError, match="needs a dict at the payload, found str"):
        compile_key_function("kind")("text")
    with pytest.raises(ConfigurationError, match="needs a dict at the payload, found list"):
        compile_key_function("{kind}")([1])


def test_an_awaitable_is_refused_and_closed() -> None:
    made = []

    async def key(_: Any) -> str:
        return "k"

    def function(payload: Any) -> Any:
        made.append(key(payload))
        return made[-1]

    with pytest.raises(TypeError, match=r"returned an awaitable \(coroutine\).*sluicegate.asyncio"):
        compile_key_function(function)({})
    assert made[0].cr_frame is None, "closed, so that nothing warns that it was never awaited"


FIELDS = st.text(st.sampled_from(":%25A3x"), max_size=4) | st.text(max_size=8)


@given(st.lists(FIELDS, min_size=2, max_size=2), st.lists(FIELDS, min_size=2, max_size=2))
@example(["a:", "b"], ["a", ":b"])
@example(["a%3A", "b"], ["a:", "b"])
@example(["%", "25"], ["%25", ""])
def test_different_fields_never_make_the_same_key(one: list[str], other: list[str]) -> None:
    function = compile_key_function(["x", "y"])
    keys = [function({"x": values[0], "y": values[1]}) for values in (one, other)]
    assert (keys[0] == keys[1]) == (one == other)


TEMPLATES = [
    "{a}:{b}", "{a}{b}", "{a}-{b}", "{a}/x/{b}/", "x{a}%{b}%", "{a}2{b}5", "{a}%25{b}", "{a}C3{b}", "{a}é{b}",
    "{a}ab{b}", "{a}::{b}", "{a}: {b}", "{{{a}}}{{{b}}}", "{a}{b}{a}", "{b}:{a}", "{a}_{b}:{a}",
]  # fmt: skip


def texts_over(alphabet: str, length: int) -> list[str]:
    return ["".join(chars) for size in range(length + 1) for chars in product(alphabet, repeat=size)]


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_never_makes_one_key_of_different_values(template: str) -> None:
    function = compile_key_function(template)
    alphabet = "".join(sorted({*template, *"%:253A"} - {*"{}ab"}))
    rows = list(product(texts_over(alphabet, 2), repeat=2))
    assert len({function({"a": one, "b": other}) for one, other in rows}) == len(rows)


@given(st.lists(st.text(st.sampled_from(":%5Axé- {"), max_size=2), min_size=3, max_size=3))
def test_any_template_of_several_fields_is_injective(literals: list[str]) -> None:
    one, two, three = (literal.replace("{", "{{") for literal in literals)
    function = compile_key_function(f"{{a}}{one}{{b}}{two}{{c}}{three}")
    alphabet = "".join(sorted({*literals[0], *literals[1], ":", "%", "5"}))[:6]
    rows = list(product(texts_over(alphabet, 1), repeat=3))
    assert len({function({"a": a, "b": b, "c": c}) for a, b, c in rows}) == len(rows)


@given(*[st.text() | st.integers()] * 4, st.sampled_from(TEMPLATES))
def test_keys_of_a_template_are_alike_for_like_values_only(a: Any, b: Any, c: Any, d: Any, template: str) -> None:
    function = compile_key_function(template)
    same = (str(a), str(b)) == (str(c), str(d))
    assert (function({"a": a, "b": b}) == function({"a": c, "b": d})) == same


def test_one_tenant_does_not_suppress_the_messages_of_another() -> None:
    function = compile_key_function("{tenant}:{order_id}")
    keys = [function({"tenant": "a", "order_id": "b:1"}), function({"tenant": "a:b", "order_id": "1"})]
    assert keys == ["a:b%3A1", "a%3Ab:1"]


@given(FIELDS, FIELDS)
def test_fields_joined_by_a_colon_make_the_key_of_their_list(one: str, other: str) -> None:
    payload = {"x": one, "y": other}
    assert compile_key_function("{x}:{y}")(payload) == compile_key_function(["x", "y"])(payload)


@given(FIELDS.filter(bool))
def test_the_key_of_a_single_field_is_the_field_as_it_is(value: str) -> None:
    assert compile_key_function("x")({"x": value}) == compile_key_function("{x}")({"x": value}) == value
    assert compile_key_function("order-{x}:%")({"x": value}) == f"order-{value}:%"


def test_a_number_and_its_digits_are_the_same_key() -> None:
    for source in ("id", "{id}", ["id"], "{id}:{id}"):
        function = compile_key_function(source)
        assert function({"id": 1}) == function({"id": "1"})


@pytest.mark.parametrize("source", ["id", "{id}", ["id"], "{id}:{id}", "a.id"])
def test_an_integer_of_too_many_digits_is_an_error_of_ours(source: Any) -> None:
    with pytest.raises(ConfigurationError, match="too many digits"):
        compile_key_function(source)({"id": 10**5000, "a": {"id": 10**5000}})


@pytest.mark.parametrize(("source", "portable"), [("a", "a"), (("a", "b"), ["a", "b"]), (len, None), (None, None)])
def test_what_can_travel(source: Any, portable: Any) -> None:
    assert portable_key_source(source) == portable


def test_the_key_function_is_called_once_per_message() -> None:
    seen = []

    def key(payload: Any) -> str:
        seen.append(payload)
        return str(payload["id"])

    publishing = Publishing(QueueKeys("q"), compile_key_function(key), 3600, 120)
    batch = one_call(publishing, b"batch", [{"id": 1}, {"id": 2}])
    assert seen == [{"id": 1}, {"id": 2}]
    assert batch.deduplication_keys == [b"1", b"2"]


@pytest.mark.parametrize(
    ("keyed", "window", "retry", "receipt", "oldest"),
    [
        (True, 3600, 120, 0, 3240),  # markers outlive every retry
        (True, 240, 120, 0, 216),
        (True, 239, 120, 600, 540),
        (True, 1, 120, 600, 540),
        (False, 3600, 120, 600, 540),
        (False, 3600, 1000, 2000, 1800),
    ],
)
def test_a_receipt_is_kept_where_markers_may_not_outlive_the_retries(
    keyed: bool, window: float, retry: float, receipt: float, oldest: float
) -> None:
    function = compile_key_function("id") if keyed else None
    batch = one_call(Publishing(QueueKeys("q"), function, window, retry), b"batch", [{"id": 1}])
    assert (batch.receipt_seconds, batch.oldest_seconds) == (receipt, oldest)
