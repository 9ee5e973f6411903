"""Run the demo of `make demo`: send a year of real flights through the gate, and watch, check and draw it.

`example_dags/flights.py` is the DAG. It knows nothing of this package, which starts it, watches it and compares.
"""
