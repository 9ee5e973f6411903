"""What Dagster's page does, through the GraphQL server behind it."""

from __future__ import annotations

from typing import Any

import httpx

_REPOSITORY = "__repository__"
_LOCATIONS = """{ workspaceOrError { ... on Workspace { locationEntries { name locationOrLoadError {
    __typename ... on PythonError { message } } } } } }"""
_START = """mutation($sensor: SensorSelector!) { startSensor(sensorSelector: $sensor) {
    __typename ... on Sensor { sensorState { id } } ... on PythonError { message } } }"""
_STOP = """mutation($id: String!) { stopSensor(id: $id) {
    __typename ... on StopSensorMutationResult { instigationState { status } } ... on PythonError { message } } }"""
_RELOAD = """mutation($name: String!) { reloadRepositoryLocation(repositoryLocationName: $name) {
    __typename ... on PythonError { message } } }"""


class DagsterApi:
    """A client of the web server of one deployment."""

    def __init__(self, url: str) -> None:
        self.url = url
        # The settings of a proxy are for other hosts.
        self.client = httpx.Client(base_url=url, timeout=60, trust_env=False)

    def answers(self) -> bool:
        """Return whether the server is there."""
        try:
            return self.client.get("/server_info").is_success
        except httpx.TransportError:
            return False

    def loaded(self) -> set[str]:
        """Return the names of the code locations that work."""
        entries = self._query(_LOCATIONS)["workspaceOrError"]["locationEntries"]
        return {
            entry["name"]
            for entry in entries
            if entry["locationOrLoadError"] and entry["locationOrLoadError"]["__typename"] == "RepositoryLocation"
        }

    def start_sensor(self, location: str, name: str) -> str:
        """Switch a sensor on, and return the id that switches it off."""
        sensor = {"repositoryLocationName": location, "repositoryName": _REPOSITORY, "sensorName": name}
        started = self._query(_START, sensor=sensor)["startSensor"]
        assert started["__typename"] == "Sensor", started
        return str(started["sensorState"]["id"])

    def stop_sensor(self, identity: str) -> None:
        stopped = self._query(_STOP, id=identity)["stopSensor"]
        assert stopped["__typename"] == "StopSensorMutationResult", stopped

    def reload(self, location: str) -> None:
        """Load the code of a location again."""
        reloaded = self._query(_RELOAD, name=location)["reloadRepositoryLocation"]
        assert reloaded["__typename"] == "WorkspaceLocationEntry", reloaded

    def _query(self, query: str, **variables: Any) -> Any:
        answer = self.client.post("/graphql", json={"query": query, "variables": variables})
        answer.raise_for_status()
        body = answer.json()
        assert "errors" not in body, body["errors"]
        return body["data"]
