"""`drain`: claim, work and settle inside Spark's executors."""
