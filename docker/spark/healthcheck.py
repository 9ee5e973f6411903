"""Report whether a master or a worker of Spark works, by its page: exit code 0 if it is alive.

Usage: healthcheck.py PORT
"""

import json
import sys
import urllib.request

with urllib.request.urlopen(f"http://localhost:{int(sys.argv[1])}/json/", timeout=4) as answer:
    state = json.load(answer)
# A worker has no status; that it lists its master means that it has registered.
healthy = state["status"] == "ALIVE" if "status" in state else bool(state["masterurl"])
sys.exit(not healthy)
