"""What all components share: the errors of their options name the file."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import ClassVar

import dagster as dg

from dagster_sluicegate.compat import component_type_spec
from dagster_sluicegate.components.models import DescribedModel
from sluicegate.errors import ConfigurationError

__all__ = ["QueueComponent"]


class QueueComponent(dg.Component, DescribedModel, ABC):
    """The base of this library's components.

    Attributes:
        produces: the kinds of its definitions, as `dg.ComponentTypeSpec` takes them.
    """

    produces: ClassVar[tuple[str, ...]]

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Return the description, the tags and the products that `dg list components --json` shows."""
        summary = (inspect.getdoc(cls) or cls.__name__).partition("\n\n")[0]
        spec: dg.ComponentTypeSpec = component_type_spec(description=" ".join(summary.split()), produces=cls.produces)
        return spec

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the definitions of the component.

        Raises:
            ConfigurationError: an option that cannot work; names the folder of the `defs.yaml`.
        """
        try:
            return self.build_queue_defs()
        except ConfigurationError as error:
            raise ConfigurationError(f"{type(self).__name__} in {context.path}: {error}") from error

    @abstractmethod
    def build_queue_defs(self) -> dg.Definitions:
        """Build the definitions; override this one to change them."""
