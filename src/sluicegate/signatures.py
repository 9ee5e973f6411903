"""Constructors that explain an option which they do not know.

A checker of types sees such a constructor as it is written, without `**`, so that a misspelt option is an error there
too.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar, cast

from sluicegate.errors import ConfigurationError, OptionTypeError

__all__ = ["explains_unknown_options", "refuse_unknown_options"]

F = TypeVar("F", bound=Callable[..., None])


def explains_unknown_options(hints: Mapping[str, str]) -> Callable[[F], F]:
    """Have an `__init__` refuse keyword arguments that it does not take, and say what to use instead.

    Such a call raises `ConfigurationError` for an option among `hints`, and for any other an `OptionTypeError` that
    names the nearest option that there is. Values stay out of both.

    Args:
        hints: what to do instead, by the name of an option of redis-message-queue that has another form here.
    """

    def decorate(init: F) -> F:
        owner = init.__qualname__.partition(".")[0]
        known = list(inspect.signature(init).parameters)[1:]

        @functools.wraps(init)
        def checked(self: Any, /, *args: Any, **options: Any) -> None:
            refuse_unknown_options(owner, options, known, hints)
            init(self, *args, **options)

        return cast("F", checked)

    return decorate


def refuse_unknown_options(owner: str, given: Iterable[str], known: Collection[str], hints: Mapping[str, str]) -> None:
    """Refuse a name that is not known.

    Args:
        owner: what is called, as in its code.
        given: names of keyword arguments.
        known: names that it takes.
        hints: what to do instead, by name.

    Raises:
        ConfigurationError: a name has a hint; `OptionTypeError` for any other, with the nearest name that is known.
    """
    for name in given:
        if name in known:
            continue
        if name in hints:
            raise ConfigurationError(f"{owner} has no option {name}; {hints[name]}")
        near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise OptionTypeError(f"{owner}() got an unexpected keyword argument {name!r}{hint}")
