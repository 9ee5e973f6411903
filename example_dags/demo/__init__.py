"""Run the demo of `make demo`: send a year of real flights through the gate, and watch, check and draw it.

`example_dags/flights.py` is the DAG, and `examples/dagster` the same pipeline for Dagster. They know nothing of this
package, which starts one of them, watches it and compares.
"""
