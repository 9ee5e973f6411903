"""The page of the queues inside Airflow."""
