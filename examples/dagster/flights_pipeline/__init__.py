"""Send a year of flights through a queue with Dagster: publish, wait for depth, drain with Spark, aggregate."""
