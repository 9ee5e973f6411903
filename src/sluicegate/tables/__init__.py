"""Messages as Arrow tables and pandas frames, with columns read out of JSON payloads."""
