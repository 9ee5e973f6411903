"""The version: that of the distribution, which is one for all its packages."""

from __future__ import annotations

from sluicegate import __version__

__all__ = ["__version__"]
