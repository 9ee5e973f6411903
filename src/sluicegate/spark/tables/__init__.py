"""Messages as typed tables: schemas, JSON into Arrow columns, pandas."""
