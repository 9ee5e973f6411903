"""Sluicegate for Dagster."""

from __future__ import annotations
