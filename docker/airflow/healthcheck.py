"""Report whether this container's component of Airflow has sent a heartbeat lately: exit code 0 if it has.

It asks the database, as `airflow jobs check` does, which takes seconds of a processor for each check.

Usage: healthcheck.py SchedulerJob|DagProcessorJob|TriggererJob
"""

import os
import socket
import sys
from pathlib import Path

import psycopg2

SECONDS = 60
QUERY = """
    SELECT count(*) FROM job
    WHERE job_type = %s AND hostname = %s AND state = 'running' AND latest_heartbeat > now() - %s * interval '1 second'
"""

url = Path(os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_FILE"]).read_text()
with psycopg2.connect(url.replace("+psycopg2", ""), connect_timeout=5) as connection, connection.cursor() as cursor:
    cursor.execute(QUERY, (sys.argv[1], socket.gethostname(), SECONDS))
    row = cursor.fetchone()
sys.exit(not (row and row[0]))
