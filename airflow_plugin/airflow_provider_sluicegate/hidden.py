"""Keep messages out of what Airflow renders, stores and shows, in plain and in mapped tasks."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any

from airflow.sdk import XComArg

if TYPE_CHECKING:
    from airflow.sdk.definitions.mappedoperator import MappedOperator, OperatorPartial

__all__ = ["Hidden", "HidingPartial", "hidden"]


class Hidden:
    """
    Hides a value from Airflow, which would render and call it and store it with the DAG.

    Airflow stores and shows its repr, which says what kind of value it is and how many messages a list has.

    :param value: what the task needs, as it was given.
    """

    def __init__(self, value: Any) -> None:
        self.value: Any = _ReadOnce(value) if isinstance(value, Iterator) else value

    def __repr__(self) -> str:
        # It must be the same each time the file is parsed, or every parse would be a new version of the DAG.
        if callable(self.value):
            return getattr(self.value, "__qualname__", type(self.value).__qualname__)
        if isinstance(self.value, _ReadOnce):
            return "generator" if self.value.is_generator else "iterator"
        kind = type(self.value).__name__
        return f"{kind} of {len(self.value)}" if isinstance(self.value, Sized) else kind


def hidden(value: Any) -> Any:
    """Hide a value, but neither None nor the output of a task, which Airflow must see to order and resolve it."""
    return value if value is None or isinstance(value, (XComArg, Hidden)) else Hidden(value)


class HidingPartial:
    """
    Hides the messages of mapped tasks; it stands for the partial operator that Airflow makes.

    Airflow stores the arguments of ``partial`` and ``expand`` with the DAG. A worker takes them from the DAG file, so
    what is stored need not hold the messages. The number of tasks stays visible to the scheduler.

    :param partial: what ``BaseOperator.partial`` returned.
    :param field: the argument that holds the messages.
    """

    def __init__(self, partial: OperatorPartial, field: str = "messages") -> None:
        if field in partial.kwargs:
            partial.kwargs[field] = hidden(partial.kwargs[field])
        self._partial = partial
        self._field = field

    def __repr__(self) -> str:
        return repr(self._partial)

    def expand(self, **mapped_kwargs: Any) -> MappedOperator:
        """Map the operator over lists or outputs of tasks."""
        if self._field in mapped_kwargs:
            mapped_kwargs[self._field] = _each_hidden(self._field, mapped_kwargs[self._field])
        return self._partial.expand(**mapped_kwargs)

    def expand_kwargs(self, kwargs: Any, *, strict: bool = True) -> MappedOperator:
        """Map the operator over a list of dicts of arguments, or over the output of a task."""
        if isinstance(kwargs, Sequence) and not isinstance(kwargs, str):
            kwargs = [
                {**each, self._field: hidden(each[self._field])}
                if isinstance(each, Mapping) and self._field in each
                else each
                for each in kwargs
            ]
        return self._partial.expand_kwargs(kwargs, strict=strict)


def _each_hidden(field: str, value: Any) -> Any:
    """Hide each task's messages; what Airflow refuses to map over stays for it to refuse."""
    if isinstance(value, Mapping):
        raise TypeError(
            f"expand({field}=…) takes a list with the {field} of each task, not a dict; wrap the {field} of one "
            "task in a list of their own"
        )
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray)):
        return [hidden(each) for each in value]
    return value


class _ReadOnce:
    """Lets an iterator be read once: a retry that continued a half-read iterator would silently lose messages."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self._iterator = iterator
        self._read = False
        self.is_generator = inspect.isgenerator(iterator)

    def __iter__(self) -> Iterator[Any]:
        from sluicegate.errors import ConfigurationError

        if self._read:
            raise ConfigurationError(
                "messages is an iterator, and an earlier try of this task has read from it; "
                "give the function that makes it, so that every try gets a new one"
            )
        self._read = True
        return self._iterator

    def __deepcopy__(self, memo: dict[int, Any]) -> _ReadOnce:
        return self
