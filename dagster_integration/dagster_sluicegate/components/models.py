"""The base of everything that a `defs.yaml` describes."""

from __future__ import annotations

import functools
from typing import Any

import dagster as dg
from pydantic import BaseModel, Field, ValidationError, create_model

from sluicegate.errors import ConfigurationError

__all__ = ["DescribedModel"]


class DescribedModel(dg.Resolvable, dg.Model):
    """A model whose YAML schema has the description and the examples of every field.

    The schema that Dagster derives by itself lacks them for fields that have a default.
    """

    @classmethod
    def model(cls) -> type[BaseModel]:
        """Return the class of the attributes in YAML."""
        return _described_model(cls, super().model())

    @classmethod
    def resolve_from_model(cls, context: dg.ResolutionContext, model: BaseModel) -> Any:
        """Make the component of the attributes of a `defs.yaml`.

        Raises:
            ConfigurationError: a value that has another type once its templates are resolved. The error does not show
                the value, which may be out of the environment.
        """
        try:
            return super().resolve_from_model(context, model)
        except ValidationError as error:
            wrong = "; ".join(_located(context, each["loc"], each["msg"]) for each in error.errors())
            raise ConfigurationError(f"{cls.__name__}: {wrong}") from None


@functools.cache
def _described_model(component: type[BaseModel], derived: type[BaseModel]) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for name, field in derived.model_fields.items():
        declared = component.model_fields[name]
        default = {} if field.is_required() else {"default": field.default}
        fields[name] = (
            field.annotation,
            Field(description=declared.description, examples=declared.examples, **default),
        )
    return create_model(derived.__name__, __base__=derived, **fields)


def _located(context: dg.ResolutionContext, field: tuple[str | int, ...], message: str) -> str:
    """Return an error of one field, with the line where the field stands."""
    tree = context.source_position_tree
    name = ".".join(map(str, field))
    if tree is None:
        return f"{name}: {message}"
    source = tree.source_error(yaml_path=[*context.path, *field], inline_error_message=message, value_error=True)
    return f"{source.file_name}:{source.start_line_no} {name}: {message}"
