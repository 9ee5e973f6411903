"""The parameters of a user's function, and functions that declare them to Dagster as their own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import dagster as dg

from dagster_sluicegate.compat import resource_parameters
from sluicegate.errors import ConfigurationError, OptionTypeError

__all__ = ["UserFunction", "upstream_assets", "with_parameters"]

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_CONTEXTS = ("context", "_", "_context", "context_")


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function as `@dg.asset` takes it: the context first, if at all, then config, resources and upstream assets.

    Attributes:
        function: the function itself.
        takes_context: whether its first parameter is Dagster's context.
        parameters: the others, with their annotations evaluated.
    """

    function: Callable[..., Any]
    takes_context: bool
    parameters: tuple[inspect.Parameter, ...]

    @classmethod
    def of(cls, function: object, name: str) -> UserFunction:
        """Read the parameters of a function.

        Args:
            function: as the user gave it.
            name: of the option, for errors.

        Raises:
            ConfigurationError: it is no function, or Dagster could not fill a parameter.
        """
        if not callable(function):
            raise OptionTypeError(f"{name} must be a function, not {function!r}")
        parameters = list(_signature(function).parameters.values())
        takes_context = bool(parameters) and parameters[0].name in _CONTEXTS
        others = parameters[1:] if takes_context else parameters
        for parameter in others:
            if parameter.kind not in _NAMED:
                raise ConfigurationError(
                    f"{name} has the parameter {str(parameter).partition(':')[0]!r}; Dagster fills parameters by name: "
                    "config, resources by their annotations, and upstream assets"
                )
        return cls(function, takes_context, tuple(others))

    def call(self, context: Any, arguments: dict[str, Any]) -> Any:
        """Call the function with what it takes of these."""
        taken = {parameter.name: arguments[parameter.name] for parameter in self.parameters}
        return self.function(context, **taken) if self.takes_context else self.function(**taken)


def with_parameters(function: Callable[..., Any], parameters: Iterable[inspect.Parameter]) -> Callable[..., Any]:
    """Return the function with another signature, from which Dagster and tests read the keywords."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    # A default would say that Dagster need not fill the parameter, which it always does.
    declared = [parameter.replace(kind=kind, default=inspect.Parameter.empty) for parameter in parameters]

    @functools.wraps(function)
    def named(*arguments: Any, **keywords: Any) -> Any:
        return function(*arguments, **keywords)

    del named.__wrapped__  # its annotations would be taken instead
    named.__annotations__ = {
        parameter.name: parameter.annotation
        for parameter in declared
        if parameter.annotation is not inspect.Parameter.empty
    }
    named.__signature__ = inspect.Signature(declared)  # type: ignore[attr-defined]
    return named


def upstream_assets(function: Callable[..., Any], declared: Iterable[dg.AssetKey]) -> dict[str, dg.AssetKey]:
    """Return the upstream asset of each parameter that is neither the context, nor config, nor a resource.

    Args:
        function: with the signature that Dagster reads.
        declared: the dependencies of the asset; a parameter may have the last part of the key of one of them as its
            name. Another parameter has the whole key as its name, as in `@dg.asset`.
    """
    filled = {"context", "config", *resource_parameters(function)}
    keys = list(declared)
    return {name: _key_of(name, keys) for name in inspect.signature(function).parameters if name not in filled}


def _key_of(name: str, declared: list[dg.AssetKey]) -> dg.AssetKey:
    found = [key for key in declared if name in (key.path[-1], key.to_python_identifier())]
    return found[0] if len(found) == 1 else dg.AssetKey(name)


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function, eval_str=True)
    except NameError:  # a name of its own scope; Dagster says which
        return inspect.signature(function)
    except ValueError:  # some builtin types have none, and Dagster cannot fill parameters that it does not know
        return inspect.Signature()
