"""Sluicegate for Apache Airflow."""

from __future__ import annotations

__all__ = ["__version__"]

__version__: str


def __getattr__(name: str) -> str:
    """Load the version when it is asked for: Airflow imports this package at its start, and nothing else of ours."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sluicegate import __version__ as version

    return version
