"""Request a drain once enough flights are ready."""

from __future__ import annotations

import dagster as dg

from dagster_sluicegate import build_queue_depth_sensor
from flights_pipeline.defs.drain import average_delays, flights
from flights_pipeline.settings import MIN_READY

flights_gate = build_queue_depth_sensor(
    name="flights_gate",
    target=[flights, average_delays],
    min_ready=MIN_READY,
    max_age_seconds=600,
    minimum_interval_seconds=4,  # Dagster's daemon looks at sensors every five seconds
    default_status=dg.DefaultSensorStatus.RUNNING,
)
