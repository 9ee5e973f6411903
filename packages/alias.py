"""Give a distribution without code the version of Sluicegate, and let it require exactly that one with its extra."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_SOURCE = Path(__file__).parents[1] / "src/sluicegate/__init__.py"


class AliasHook(MetadataHookInterface):
    """This hook reads `extra` from `[tool.hatch.metadata.hooks.custom]` of the distribution."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the version and the one dependency."""
        (version,) = re.findall(r'^__version__ = "(.+)"$', _SOURCE.read_text(), re.MULTILINE)
        metadata["version"] = version
        metadata["dependencies"] = [f"sluicegate[{self.config['extra']}]=={version}"]
