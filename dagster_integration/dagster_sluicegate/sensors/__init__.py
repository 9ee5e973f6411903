"""Sensors that request runs when a queue has work, and read only."""
