"""The user's `process` function: how it wants its batches, and one call of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from sluicegate.errors import ConfigurationError
from sluicegate.message import Message
from sluicegate.spark.context import DrainContext

__all__ = ["BatchFormat", "Handler"]

BatchFormat = Literal["messages", "arrow"]
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_TABLE_NAMES = ("pa.Table", "pyarrow.Table", "Table")
_HOW = "write process(batch) or process(batch, ctx)"


@dataclass(frozen=True, slots=True)
class Handler:
    """A `process` function with what its signature says. It travels to the executors as Spark pickles functions.

    Attributes:
        process: the function.
        takes_context: whether it wants a `DrainContext` as its second argument.
        batch_format: whether its batches are lists of `Message` or Arrow tables.
    """

    process: Callable[..., object]
    takes_context: bool
    batch_format: BatchFormat

    @classmethod
    def of(cls, process: Callable[..., object], batch_format: BatchFormat | None = None) -> Handler:
        """Read the signature of a function; `batch_format` overrides the annotation of its first parameter.

        Raises:
            ConfigurationError: it takes no batch, wants more than a batch and a context, or would only run when awaited
                or iterated.
            TypeError: not callable.
        """
        if not callable(process):
            raise TypeError(f"process must be a function of a batch, not a {type(process).__name__}")
        if batch_format is not None and batch_format not in get_args(BatchFormat):
            raise ConfigurationError(
                f"batch_format must be one of {', '.join(get_args(BatchFormat))}, not {batch_format!r}"
            )
        for lazy, kind in (
            (inspect.iscoroutinefunction, "a coroutine function"),
            (inspect.isgeneratorfunction, "a generator function"),
            (inspect.isasyncgenfunction, "an async generator function"),
        ):
            if lazy(process) or lazy(getattr(process, "__call__", None)):  # noqa: B004  (its method, not whether it has one)
                raise ConfigurationError(f"process is {kind}, of which a call does no work; {_HOW} as a plain function")
        signature = _signature(process)
        if signature is None:
            return cls(process, False, batch_format or "messages")
        return cls(process, _takes_context(signature), batch_format or _annotated_format(signature))

    def __call__(self, messages: list[Message], context: DrainContext) -> None:
        """Work on a batch; whatever this raises, an unreadable entry included, is the handler's failure."""
        batch: Any = messages
        if self.batch_format == "arrow":
            from sluicegate.spark._arrow import to_table

            batch = to_table(messages)
        result = self.process(batch, context) if self.takes_context else self.process(batch)
        if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
            if inspect.iscoroutine(result):
                result.close()
            raise TypeError(
                f"process returned a {type(result).__name__}, so its work was not done; {_HOW} as a plain function"
            )


def _signature(process: Callable[..., object]) -> inspect.Signature | None:
    """The signature with its annotations evaluated where that works; None for a builtin that has none."""
    try:
        return inspect.signature(process, eval_str=True)
    except (NameError, AttributeError, SyntaxError, TypeError):
        return inspect.signature(process)
    except ValueError:
        return None


def _takes_context(signature: inspect.Signature) -> bool:
    parameters = list(signature.parameters.values())
    positional = [parameter for parameter in parameters if parameter.kind in _POSITIONAL]
    variadic = any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters)
    required = [parameter for parameter in positional if parameter.default is inspect.Parameter.empty]
    keywords = [
        parameter.name
        for parameter in parameters
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.default is inspect.Parameter.empty
    ]
    if keywords:
        raise ConfigurationError(f"process requires the keyword {keywords[0]!r}, which a drain cannot give; {_HOW}")
    if len(required) > 2:
        raise ConfigurationError(
            f"process requires {len(required)} arguments; {_HOW}, and bind others with functools.partial"
        )
    if not positional and not variadic:
        raise ConfigurationError(f"process takes no batch; {_HOW}")
    # A second parameter with a default is the function's own business, unless its name says what it wants.
    return len(required) == 2 or (len(positional) >= 2 and positional[1].name == "ctx")


def _annotated_format(signature: inspect.Signature) -> BatchFormat:
    annotation = next(iter(signature.parameters.values())).annotation
    if isinstance(annotation, str):
        return "arrow" if annotation.strip("'\"") in _TABLE_NAMES else "messages"
    package = getattr(annotation, "__module__", "").partition(".")[0]
    if package != "pyarrow":
        return "messages"
    if annotation.__name__ != "Table":
        raise ConfigurationError(
            f"process wants a pyarrow.{annotation.__name__}; a drain gives a pyarrow.Table or a list of messages"
        )
    return "arrow"
