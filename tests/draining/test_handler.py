"""What the signature of a `process` function says, and which functions are refused."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pandas
import pandas as pd
import pyarrow
import pyarrow as pa
import pyspark.sql
import pytest

from sluicegate import Message
from sluicegate.draining.context import DrainContext
from sluicegate.draining.handler import Handler
from sluicegate.errors import ConfigurationError

if TYPE_CHECKING:
    from nowhere import Unknown

CONTEXT = DrainContext(lease_key="k", lease_id="run/0/0", opening="1-1", partition=0, chunk=0, run_id="run")


def message(text: str = "payload") -> Message:
    return Message(b"1" + b"0" * 28 + b"id\x1f\x1f\x1f" + text.encode(), slot=1, deliveries_begun=1)


def batch_only(batch: list[Message]) -> None: ...
def with_context(batch: list[Message], ctx: DrainContext) -> None: ...
def with_any_second(batch: Any, what: Any) -> None: ...
def with_own_default(batch: Any, folder: str = "/tmp") -> None: ...
def with_optional_context(batch: Any, ctx: DrainContext | None = None) -> None: ...
def with_context_spelt_out(batch: Any, context: DrainContext | None = None) -> None: ...
def variadic(*args: Any) -> None: ...
def third_has_default(batch: Any, ctx: Any, folder: str = "/tmp") -> None: ...


class Callable:
    def __call__(self, batch: list[Message], ctx: DrainContext) -> None: ...

    def method(self, batch: list[Message]) -> None: ...


@pytest.mark.parametrize(
    ("process", "takes_context"),
    [
        (batch_only, False),
        (with_context, True),
        (with_any_second, True),
        (with_own_default, False),
        (with_optional_context, True),
        (with_context_spelt_out, True),
        (lambda batch, ctx=None: None, True),
        (lambda batch, context=None: None, True),
        (variadic, False),
        (third_has_default, True),
        (lambda batch: None, False),
        (lambda batch, ctx: None, True),
        (Callable(), True),
        (Callable().method, False),
        (functools.partial(third_has_default, folder="/data"), True),
        (functools.partial(with_own_default, folder="/data"), False),
        ([].extend, False),
        (len, False),
        (dict, False),
    ],
)
def test_the_context_is_given_by_arity(process: Any, takes_context: bool) -> None:
    assert Handler.of(process).takes_context is takes_context


def by_alias(batch: pa.Table) -> None: ...
def by_name(batch: pyarrow.Table, ctx: DrainContext) -> None: ...
def by_text(batch: pa.Table, other: Unknown = None) -> None: ...


@pytest.mark.parametrize("process", [by_alias, by_name, by_text])
def test_a_table_is_asked_for_by_annotation(process: Any) -> None:
    assert Handler.of(process).batch_format == "arrow"


def by_frame(batch: pd.DataFrame) -> None: ...
def by_name_of_frame(batch: pandas.DataFrame, ctx: DrainContext) -> None: ...
def by_text_of_frame(batch: pd.DataFrame, other: Unknown = None) -> None: ...


@pytest.mark.parametrize("process", [by_frame, by_name_of_frame, by_text_of_frame])
def test_a_frame_is_asked_for_by_annotation(process: Any) -> None:
    assert Handler.of(process).batch_format == "pandas"


def test_batch_format_overrides_the_annotation() -> None:
    assert Handler.of(by_alias, "messages").batch_format == "messages"
    assert Handler.of(batch_only, "arrow").batch_format == "arrow"
    assert Handler.of(batch_only).batch_format == "messages"


async def coroutine(batch: list[Message]) -> None: ...


def generator(batch: list[Message]) -> Iterator[None]:
    yield


async def async_generator(batch: list[Message]) -> AsyncIterator[None]:
    yield


class AsyncCallable:
    async def __call__(self, batch: list[Message]) -> None: ...


def no_batch() -> None: ...
def three(batch: Any, ctx: Any, folder: Any) -> None: ...
def keyword(batch: Any, *, folder: str) -> None: ...
def record_batch(batch: pa.RecordBatch) -> None: ...
def of_spark(batch: pyspark.sql.DataFrame) -> None: ...


@pytest.mark.parametrize(
    ("process", "said"),
    [
        (coroutine, "coroutine function"),
        (functools.partial(coroutine), "coroutine function"),
        (AsyncCallable(), "coroutine function"),
        (generator, "generator function"),
        (async_generator, "async generator function"),
        (no_batch, "takes no batch"),
        (three, "requires 3 arguments"),
        (keyword, "keyword 'folder'"),
        (record_batch, "pyarrow.RecordBatch"),
        (of_spark, "process wants a pyspark.DataFrame; a drain gives a pyarrow.Table, a pandas.DataFrame or a list"),
    ],
)
def test_what_could_not_work_is_refused_with_a_reason(process: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Handler.of(process)


def test_what_is_no_function_or_no_format_is_refused() -> None:
    with pytest.raises(TypeError, match="list"):
        Handler.of([])  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="'polars'"):
        Handler.of(batch_only, "polars")  # type: ignore[arg-type]


@pytest.mark.parametrize("lazy", [coroutine, generator, async_generator])
def test_a_hidden_lazy_result_is_a_failure_and_not_an_ack(lazy: Any) -> None:
    def process(batch: list[Message]) -> Any:
        return lazy(batch)

    handler = Handler.of(process)

    with pytest.raises(TypeError, match="its work was not done"):
        handler([message()], CONTEXT)


def test_the_handler_gets_messages_or_a_table_and_the_context() -> None:
    seen: list[Any] = []
    Handler.of(lambda batch, ctx: seen.append((batch, ctx)))([message("a")], CONTEXT)
    Handler.of(seen.append, "arrow")([message("b")], CONTEXT)

    (messages, context), table = seen
    assert [type(item) for item in messages] == [Message]
    assert context is CONTEXT
    assert table.column("payload").to_pylist() == [b"b"]
