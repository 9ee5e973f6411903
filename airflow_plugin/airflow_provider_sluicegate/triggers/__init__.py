"""Triggers for tasks that wait and for assets that watch a queue."""
