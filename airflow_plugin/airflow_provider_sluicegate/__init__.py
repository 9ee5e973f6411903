"""Sluicegate for Apache Airflow."""

from __future__ import annotations
