"""Sluicegate for Apache Airflow."""

from __future__ import annotations

from sluicegate import __version__

__all__ = ["__version__"]
