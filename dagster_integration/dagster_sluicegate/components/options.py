"""Fields of components, which get their default and their description from the factory that they are for."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import Field

__all__ = ["documented", "option"]

# "name: text", whose further lines are indented.
_ENTRY = re.compile(r"^(\w+): (.*(?:\n(?: {4}.*|\s*$))*)", re.MULTILINE)


def option(factory: Callable[..., Any], name: str, *, examples: Sequence[Any], **overrides: Any) -> Any:
    """Return the field for a parameter of a factory: with its default, and what the factory's docstring says of it.

    Args:
        factory: a function with a Google-style docstring.
        name: of the parameter.
        examples: values as YAML has them.
        overrides: `default` or `description`, where YAML's are others.
    """
    default = inspect.signature(factory).parameters[name].default
    field = {"description": documented(factory).get(name)}
    if default is not inspect.Parameter.empty:
        field["default"] = default
    return Field(examples=list(examples), **{**field, **overrides})


@functools.cache
def documented(factory: Callable[..., Any]) -> Mapping[str, str]:
    """Return what the docstring of a factory, or of a dataclass, says of each parameter; nothing under `python -OO`."""
    text = re.split(r"\n(?:Args|Attributes):\n", inspect.getdoc(factory) or "", maxsplit=1)[-1].partition(
        "\n\nRaises:"
    )[0]
    entries = _ENTRY.findall(inspect.cleandoc(text))
    return {name: _sentence(" ".join(entry.split())) for name, entry in entries}


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
