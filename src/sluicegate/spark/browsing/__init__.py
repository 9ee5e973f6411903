"""Browse a queue without claiming, and read dead letters as a table."""
