"""Turn messages into Arrow tables and pandas frames, with columns from JSON payloads."""
