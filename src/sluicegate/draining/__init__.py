"""The drain engine: claim, call the handler, settle, chunk after chunk; Spark, Dagster and plain Python run on it."""
