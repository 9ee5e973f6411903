"""The demo behind `make demo`: a year of real flights through the gate, watched, checked and drawn.

`example_dags/flights.py` is the DAG and knows nothing of this package, which only starts it, looks on and compares.
"""
