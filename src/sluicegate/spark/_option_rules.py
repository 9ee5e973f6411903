"""Declare options and read them from the texts that Spark hands over.

An option is a field of a dataclass. The field's name in camel case is the name that users write, its default is the
option's default, and its rule turns the text into a value or refuses it. Spark takes option names in any case and
silently ignores a name that nobody reads; here an unknown name is an error, because a misspelt `maxMessagesPerTrigger`
would otherwise be found in production only.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field
from typing import Any

from sluicegate import checks
from sluicegate.errors import ConfigurationError

__all__ = [
    "GivenOptions",
    "Option",
    "Rule",
    "count",
    "declared_options",
    "flag",
    "number",
    "one_of",
    "option",
    "seconds",
    "text",
]

Rule = Callable[[str, str], Any]
"""From an option's name and its text to its value; raises `ConfigurationError` for a text that cannot work."""

_DECLARATION = "option"
_MAX_COUNT = 2**31 - 1
_ADDED_BY_SPARK = frozenset({"checkpointlocation", "queryname", "path"})


@dataclass(frozen=True, slots=True)
class Option:
    """Declares one option.

    Attributes:
        name: as users write it, such as `maxMessagesPerTrigger`.
        rule: turns its text into a value, or refuses it.
        required: what to give for an option that has no default; "" for one that has.
        internal: whether only this package sets it, so that no error shows it to users.
    """

    name: str
    rule: Rule
    required: str = ""
    internal: bool = False


def option(rule: Rule, *, default: Any = MISSING, required: str = "", internal: bool = False) -> Any:
    """Declare an option: a dataclass field with its rule, and either a default or what is `required`."""
    declaration = {"rule": rule, "required": required, "internal": internal}
    return field(default=default, metadata={_DECLARATION: declaration})


def declared_options(kind: type) -> dict[str, Option]:
    """Return the options that a dataclass declares, by the name of their field."""
    return {
        found.name: Option(_camel_case(found.name), **found.metadata[_DECLARATION])
        for found in dataclasses.fields(kind)
        if _DECLARATION in found.metadata
    }


class GivenOptions:
    """Holds the options of one read or write, by name in any case.

    Args:
        raw: the options that Spark hands over.
        use: the read or write, as errors name it.
    """

    def __init__(self, raw: Mapping[str, str], use: str) -> None:
        self.use = use
        self._texts = {name.lower(): str(value).strip() for name, value in raw.items()}

    def text(self, name: str) -> str | None:
        """Return the text of an option; None if it is left out or blank."""
        return self._texts.get(name.lower()) or None

    def read(self, declared: Mapping[str, Option]) -> dict[str, Any]:
        """Return the values of the given options, by the name of their field.

        Raises:
            ConfigurationError: a required option is missing, or an option is out of range.
        """
        values: dict[str, Any] = {}
        for field_name, one in declared.items():
            given = self.text(one.name)
            if given is not None:
                values[field_name] = one.rule(one.name, given)
            elif one.required:
                raise ConfigurationError(f"{self.use} needs the option {one.name}: {one.required}")
        return values

    def refuse_unknown(self, shown: Iterable[str], hidden: Iterable[str] = ()) -> None:
        """Refuse an option that nobody reads.

        Args:
            shown: names of the options that there are.
            hidden: names of options that only this package sets.

        Raises:
            ConfigurationError: names the first unknown option, those that there are, and the one that was likely meant.
        """
        names = {name.lower(): name for name in shown}
        unknown = sorted(self._texts.keys() - names.keys() - {name.lower() for name in hidden} - _ADDED_BY_SPARK)
        if unknown:
            near = difflib.get_close_matches(unknown[0], names, n=1, cutoff=0.6)
            hint = f"; did you mean {names[near[0]]}?" if near else ""
            raise ConfigurationError(
                f"{self.use} has no option {unknown[0]!r}; there are {', '.join(names.values())}{hint}"
            )


# ---------------------------------------------------------------------- rules


def text(name: str, given: str) -> str:
    """Take any text."""
    return given


def one_of(*words: str) -> Rule:
    """Take one of a few words, in any case."""

    def rule(name: str, given: str) -> str:
        word = given.lower()
        if word not in words:
            raise ConfigurationError(f"option {name} must be one of {', '.join(words)}, not {word!r}")
        return word

    return rule


def flag(name: str, given: str) -> bool:
    """Take `true` or `false`."""
    return bool(one_of("true", "false")(name, given) == "true")


def count(maximum: int = _MAX_COUNT) -> Rule:
    """Take a whole number from 1 to `maximum`."""

    def rule(name: str, given: str) -> int:
        if not (given.isascii() and given.isdigit() and len(given) < 20) or not 1 <= int(given) <= maximum:
            raise ConfigurationError(f"option {name} must be a whole number from 1 to {maximum}, not {given!r}")
        return int(given)

    return rule


def number(minimum: float, maximum: float) -> Rule:
    """Take a number from `minimum` to `maximum`."""

    def rule(name: str, given: str) -> float:
        try:
            value = float(given)
        except ValueError:
            value = math.nan
        if not minimum <= value <= maximum:
            raise ConfigurationError(f"option {name} must be a number from {minimum:g} to {maximum:g}, not {given!r}")
        return value

    return rule


def seconds(minimum: float = 0, maximum: float = checks.MAX_SECONDS) -> Rule:
    """Take a number of seconds from `minimum` to `maximum`."""

    def rule(name: str, given: str) -> float:
        try:
            value = float(given)
        except ValueError:
            value = math.nan
        if not minimum <= value <= maximum:
            raise ConfigurationError(f"option {name} must be seconds from {minimum:g} to {maximum:g}, not {given!r}")
        return value

    return rule


def _camel_case(name: str) -> str:
    return re.sub(r"_(\w)", lambda found: found[1].upper(), name)
