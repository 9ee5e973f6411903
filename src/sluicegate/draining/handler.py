"""The user's `process` function: what its signature asks for, and one call of it."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from sluicegate.draining.context import DrainContext
from sluicegate.errors import ConfigurationError
from sluicegate.message import Message
from sluicegate.tables.misfits import check_mode

if TYPE_CHECKING:
    from sluicegate.tables.columns import Columns, Schema

__all__ = ["BatchFormat", "Handler", "import_handler", "import_named", "split_name"]

BatchFormat = Literal["messages", "arrow", "pandas"]
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME: dict[str, BatchFormat] = {
    **dict.fromkeys(("pa.Table", "pyarrow.Table", "Table"), "arrow"),
    **dict.fromkeys(("pd.DataFrame", "pandas.DataFrame", "DataFrame"), "pandas"),
}
_OTHER_FRAMES = ("numpy", "pandas", "polars", "pyarrow", "pyspark")  # no batch is an instance of their other classes
_CONTEXT_NAMES = ("ctx", "context")
_HOW = "write process(batch) or process(batch, ctx)"


def import_handler(name: str, option: str = "process") -> Callable[..., object]:
    """Import a handler by its name.

    Args:
        name: `"module:function"`.
        option: what the errors call it.

    Raises:
        ConfigurationError: the name has another form, or the module cannot be imported or has no such function.
    """
    found = import_named(name, option)
    if not callable(found):
        module, attribute = split_name(name, option)
        raise ConfigurationError(f"{option} {name!r}: module {module!r} has no function {attribute!r}")
    process: Callable[..., object] = found
    return process


def import_named(name: str, option: str) -> object:
    """Import what a name stands for, a function or not; None if the module has no such name.

    Raises:
        ConfigurationError: the name has another form, or the module cannot be imported.
    """
    module, attribute = split_name(name, option)
    try:
        return getattr(importlib.import_module(module), attribute, None)
    except Exception as error:
        raise ConfigurationError(
            f"{option} {name!r} cannot be imported ({type(error).__name__}: {error}); the module must be installed, or "
            "on PYTHONPATH, where the drain runs"
        ) from error


def split_name(name: str, option: str = "process") -> tuple[str, str]:
    """Return the module and the function of a handler's name, without importing them.

    Raises:
        ConfigurationError: the name is not `"module:function"`.
    """
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise ConfigurationError(f"{option} must be a function or its name, 'module:function', not {name!r}")
    return module, attribute


@dataclass(frozen=True, slots=True)
class Handler:
    """A `process` function and what its signature asks for. It can be pickled if the function can.

    Attributes:
        process: the function.
        takes_context: whether it takes a `DrainContext` as its second argument.
        batch_format: whether its batches are lists of `Message`, Arrow tables or pandas frames.
        columns: the columns of the tables and frames; None for lists.
    """

    process: Callable[..., object]
    takes_context: bool
    batch_format: BatchFormat
    columns: Columns | None = None

    @classmethod
    def of(
        cls,
        process: Callable[..., object],
        batch_format: BatchFormat | None = None,
        schema: Schema | None = None,
        mode: str = "FAILFAST",
        column_name_of_corrupt_record: str | None = None,
    ) -> Handler:
        """Read the signature of a function; `batch_format` overrides the annotation of its first parameter.

        Args:
            process: the function.
            batch_format: the format of its batches; with a schema, Arrow tables by default.
            schema: of the payloads, see `sluicegate.drain`.
            mode: what happens to payloads that do not fit it.
            column_name_of_corrupt_record: the column that holds them in the mode PERMISSIVE.

        Raises:
            ConfigurationError: the function takes no batch, needs more than a batch and a context, or would only run
                when it is awaited or iterated; or the schema cannot be read, or is given for lists of messages.
            TypeError: it is not callable.
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
        takes_context = signature is not None and _takes_context(signature)
        wanted = batch_format or (_annotated_format(signature) if signature is not None else None)
        if schema is not None and wanted == "messages":
            raise ConfigurationError(
                "a schema makes columns, and process gets a list of messages; ask for 'arrow' or 'pandas' as "
                "batch_format, or leave the schema out"
            )
        check_mode(mode, column_name_of_corrupt_record, has_schema=schema is not None)
        wanted = wanted or ("messages" if schema is None else "arrow")
        columns = None if wanted == "messages" else _columns(schema, mode, column_name_of_corrupt_record)
        return cls(process, takes_context, wanted, columns)

    def __call__(self, messages: Sequence[Message], context: DrainContext) -> object:
        """Call the function with a batch. Whatever this raises, an unreadable entry included, is the handler's failure.

        Returns:
            What the function returned: verdicts, see `VerdictCollector.close`.
        """
        batch: Any
        if self.columns is None:
            batch = list(messages)
        else:
            batch = self.columns.table(messages)
            if self.batch_format == "pandas":
                from sluicegate.tables.arrow import to_pandas

                batch = to_pandas(batch)
        result = self.process(batch, context) if self.takes_context else self.process(batch)
        if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
            if inspect.iscoroutine(result):
                result.close()
            raise TypeError(
                f"process returned a {type(result).__name__}, so its work was not done; {_HOW} as a plain function"
            )
        return result


def _signature(process: Callable[..., object]) -> inspect.Signature | None:
    """Return the signature, with its annotations evaluated if possible; None for a builtin that has none."""
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
    # A second parameter with a default is the function's own, unless its name asks for the context.
    return len(required) == 2 or (len(positional) >= 2 and positional[1].name in _CONTEXT_NAMES)


def _columns(schema: Schema | None, mode: str, column_name_of_corrupt_record: str | None) -> Columns:
    from sluicegate.tables.columns import Columns

    return Columns.of(schema, mode=mode, column_name_of_corrupt_record=column_name_of_corrupt_record)


def _annotated_format(signature: inspect.Signature) -> BatchFormat | None:
    annotation = next(iter(signature.parameters.values())).annotation
    if isinstance(annotation, str):
        return _BY_NAME.get(annotation.strip("'\""), "messages" if "Message" in annotation else None)
    package, name = getattr(annotation, "__module__", "").partition(".")[0], getattr(annotation, "__name__", "")
    if f"{package}.{name}" in _BY_NAME:
        return _BY_NAME[f"{package}.{name}"]
    if package in _OTHER_FRAMES:
        raise ConfigurationError(
            f"process wants a {package}.{name}; a drain gives a pyarrow.Table, a pandas.DataFrame or a list of messages"
        )
    return "messages" if "sluicegate.message.Message" in str(annotation) else None
