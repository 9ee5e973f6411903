"""Turns the texts of arguments into plain types by ourselves, where typer would load pydantic for it.

That import takes longer than counting a queue. Newer versions of typer keep what coerces a parameter in an attribute;
where there is none, or a parameter asks for more than a plain type, typer does it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_origin

import typer

__all__ = ["coerce_plainly"]

_SLOT = "_runtime_param"
_CHECKED_ELSEWHERE = ("min", "max", "formats", "click_type", "path_type")
_PATH_CHECKS = ("exists", "writable", "resolve_path", "allow_dash")
_WORDS = {int: "a whole number", float: "a number"}


def coerce_plainly(*parameters: Any) -> None:
    """Set what coerces parameters of commands, for those of plain types."""
    for parameter in parameters:
        descriptor = getattr(parameter, "type_descriptor", None)
        if descriptor is None or not hasattr(parameter, _SLOT):
            continue
        info = descriptor.parameter_info
        convert = _converter(descriptor.annotation, info)
        asks_for_more = any(getattr(info, name, None) is not None for name in _CHECKED_ELSEWHERE)
        if convert is not None and not asks_for_more and not any(getattr(info, name, False) for name in _PATH_CHECKS):
            setattr(parameter, _SLOT, _Plain(convert))


class _Plain:
    """Coerces the values of one parameter."""

    def __init__(self, convert: Callable[[str], Any]) -> None:
        self._convert = convert

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return a value in its type.

        Raises:
            typer.BadParameter: it is not of that type.
        """
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        try:
            if isinstance(value, (list, tuple)):
                return [self._convert(one) if isinstance(one, str) else one for one in value]
            return self._convert(value) if isinstance(value, str) else value
        except typer.BadParameter as error:
            raise typer.BadParameter(error.message, ctx=ctx, param=param) from None


def _converter(annotation: Any, info: Any) -> Callable[[str], Any] | None:
    """Return what makes a value of a text; None for a type that is not plain."""
    if getattr(info, "parser", None) is not None:
        parser: Callable[[str], Any] = info.parser
        return parser
    if get_origin(annotation) is list:
        (annotation,) = get_args(annotation)
    if annotation in (str, Path):
        kind: Callable[[str], Any] = annotation
        return kind
    if annotation is bool:
        return lambda text: text.lower() in ("1", "true", "yes", "on")
    return _number_of(annotation) if annotation in _WORDS else None


def _number_of(kind: type) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not {_WORDS[kind]}") from None

    return convert
