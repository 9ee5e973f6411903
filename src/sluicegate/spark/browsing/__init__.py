"""Looking without claiming, and dead letters as a table."""
