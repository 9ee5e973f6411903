"""Lease a batch on the driver and read it as a DataFrame."""
