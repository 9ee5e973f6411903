"""Report whether the code location serves: exit code 0 if it does.

It asks as `dagster api grpc-health-check` does, which takes seconds of a processor for each check.

Usage: healthcheck.py PORT
"""

import sys

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

with grpc.insecure_channel(f"localhost:{int(sys.argv[1])}") as channel:
    answer = HealthStub(channel).Check(HealthCheckRequest(service="DagsterApi"), timeout=4)
sys.exit(answer.status != HealthCheckResponse.SERVING)
