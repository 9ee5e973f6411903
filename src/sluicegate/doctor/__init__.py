"""Examines a Redis and the queues on it, and says what to do about each finding; it changes nothing."""

from sluicegate.doctor.examination import examine
from sluicegate.doctor.finding import Finding, Severity, worst

__all__ = ["Finding", "Severity", "examine", "worst"]
