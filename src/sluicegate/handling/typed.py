"""Payloads as models: `pydantic.BaseModel` and `msgspec.Struct`, where their libraries are installed.

A class of theirs proves that its library is loaded, so nothing is imported here. Error texts hold paths and the kind of
a problem, and never a value.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

from sluicegate.core.bounds import shorten
from sluicegate.core.paths import ROOT, Path, words
from sluicegate.errors import InvalidPayloadError

__all__ = ["model_reader"]

_MAX_PROBLEMS = 5
_MAX_NAME_LENGTH = 80  # of a field that a publisher chose
_AT = re.compile(r"^(?P<what>.*?)(?: - at `(?P<path>\$.*)`)?$", re.S)
_FIELD = re.compile(r"^Object (?:missing|contains) (?P<what>required|unknown) field `(?P<name>[^`]*)`$")


def model_reader(model: object) -> Callable[[bytes], Any] | None:
    """Return the function that turns a JSON payload into a model; None for what is no class of a model.

    The function raises `InvalidPayloadError` for a payload that does not validate.
    """
    if not isinstance(model, type):
        return None
    pydantic, msgspec = sys.modules.get("pydantic"), sys.modules.get("msgspec")
    if pydantic is not None and issubclass(model, pydantic.BaseModel):
        return _of_pydantic(model, pydantic.ValidationError)
    if msgspec is not None and issubclass(model, msgspec.Struct):
        return _of_msgspec(model, msgspec)
    return None


def _of_pydantic(model: Any, refusal: type[Exception]) -> Callable[[bytes], Any]:
    def read(payload: bytes) -> Any:
        try:
            return model.model_validate_json(payload)
        except refusal as error:
            found: Any = error
            problems = found.errors(include_url=False, include_context=False, include_input=False)
            raise _refused(model, ((_path(each["loc"]), each["type"]) for each in problems)) from None

    return read


def _of_msgspec(model: Any, msgspec: Any) -> Callable[[bytes], Any]:
    decoder = msgspec.json.Decoder(model)

    def read(payload: bytes) -> Any:
        try:
            return decoder.decode(payload)
        except msgspec.ValidationError as error:
            raise _refused(model, [_problem(str(error))]) from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise _refused(model, [("$", "not JSON")]) from None

    return read


def _problem(text: str) -> tuple[str, str]:
    """Return the path and the kind of a problem that msgspec describes, without the value that it may name."""
    found = _AT.match(text)
    what, path = (found["what"], found["path"] or "$") if found is not None else (text, "$")
    field = _FIELD.match(what)
    if field is not None:
        return (
            f"{path}.{shorten(field['name'], _MAX_NAME_LENGTH)}",
            f"{'missing' if field['what'] == 'required' else 'unknown'} field",
        )
    return path, what if what.startswith("Expected `") else "invalid value"


def _path(steps: Iterable[str | int]) -> str:
    path: Path = ROOT
    for step in steps:
        path = (path, step)
    return words(path)


def _refused(model: type, problems: Iterable[tuple[str, str]]) -> InvalidPayloadError:
    found = list(problems)
    shown = "; ".join(f"{path}: {what}" for path, what in found[:_MAX_PROBLEMS])
    more = f"; and {len(found) - _MAX_PROBLEMS} more" if len(found) > _MAX_PROBLEMS else ""
    return InvalidPayloadError(
        f"the payload is no {model.__name__}: {shown}{more}", paths=tuple(path for path, _ in found)
    )
