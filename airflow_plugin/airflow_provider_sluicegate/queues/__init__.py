"""What Airflow's common message queue trigger needs to know about Sluicegate."""
