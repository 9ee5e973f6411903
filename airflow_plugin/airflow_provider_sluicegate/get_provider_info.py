"""Describe this provider to Airflow."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

__all__ = ["get_provider_info"]

_NAME = "Sluicegate"
_DISTRIBUTION = "sluicegate"  # the one that registers this function
_PACKAGE = "airflow_provider_sluicegate"


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata. Airflow calls it at start-up, so nothing heavy is imported here."""
    return {
        "package-name": _DISTRIBUTION,
        "name": _NAME,
        "description": "Dependable message queues on Redis: publish dedup-keyed batches, open the gate on depth or "
        "age, drain leased messages.",
        "versions": [version(_DISTRIBUTION)],
        "integrations": [
            {
                "integration-name": _NAME,
                "external-doc-url": "https://sluicegate.github.io/sluicegate/airflow/",
                "tags": ["software"],
            }
        ],
        "hooks": [_modules("hooks.redis_queue")],
        "operators": [
            _modules(
                "operators.administration",
                "operators.consume",
                "operators.drain",
                "operators.jobs",
                "operators.lease",
                "operators.publish",
                "operators.spark",
                "operators.spark_submit",
            )
        ],
        "sensors": [_modules("sensors.batch", "sensors.jobs", "sensors.redis_queue")],
        "triggers": [
            _modules(
                "triggers.batch",
                "triggers.delivery",
                "triggers.event",
                "triggers.jobs",
                "triggers.lease",
                "triggers.redis_queue",
                "triggers.room",
            )
        ],
        "queues": [f"{_PACKAGE}.queues.redis_queue.RedisQueueMessageQueueProvider"],
        "task-decorators": [
            {"name": "redis_queue", "class-name": f"{_PACKAGE}.decorators.redis_queue.redis_queue_task"}
        ],
        "cli": [f"{_PACKAGE}.cli.definition.get_cli_commands"],
        "extra-links": [f"{_PACKAGE}.links.queue.QueueLink"],
        "config": {
            "sluicegate": {
                "description": "The page of the queues in Airflow's web interface.",
                "options": {
                    "ui_enabled": _option("Whether there is a page at all.", "boolean", "True"),
                    "ui_connections": _option(
                        "Ids of the connections that have a page, separated by commas.", "string", "sluicegate_default"
                    ),
                    "ui_read_only": _option("Whether changing a queue there is refused.", "boolean", "False"),
                    "ui_masks": _option(
                        "Paths of payloads, and names of headers, whose values the page does not show, separated by "
                        "commas.",
                        "string",
                        "",
                        "card.number, *.password, headers.authorization",
                    ),
                    "ui_gates": _option(
                        "The gates of your sensors as JSON, by the name of a queue or by stream/group; the page draws "
                        "them into its charts.",
                        "string",
                        "",
                        '{"orders": {"min_ready": 1000, "max_age_seconds": 900}}',
                    ),
                },
            }
        },
        "notifications": [f"{_PACKAGE}.notifications.redis_queue.RedisQueueNotifier"],
        "asset-uris": [
            {
                "schemes": ["sluicegate"],
                "handler": f"{_PACKAGE}.assets.redis_queue.sanitize_uri",
                "factory": f"{_PACKAGE}.assets.redis_queue.create_asset",
                "to_openlineage_converter": f"{_PACKAGE}.assets.redis_queue.convert_asset_to_openlineage",
            }
        ],
        "connection-types": [
            {
                "connection-type": "sluicegate",
                "hook-class-name": f"{_PACKAGE}.hooks.redis_queue.RedisQueueHook",
                "hook-name": _NAME,
                "ui-field-behaviour": {
                    "hidden-fields": ["schema"],
                    "relabeling": {"login": "Username"},
                    "placeholders": {
                        "host": "localhost, a list of Sentinels or nodes, or the path of a socket",
                        "port": "6379",
                        "login": "empty for the default user",
                        "password": "empty when the password is in an environment variable",
                    },
                },
                "conn-fields": _CONNECTION_FIELDS,
            }
        ],
    }


def _modules(*modules: str) -> dict[str, Any]:
    return {"integration-name": _NAME, "python-modules": [f"{_PACKAGE}.{module}" for module in modules]}


def _option(description: str, kind: str, default: str, example: str | None = None) -> dict[str, Any]:
    return {
        "description": description,
        "version_added": "0.2.0",
        "type": kind,
        "example": example,
        "default": default,
    }


def _field(label: str, kind: str, description: str, **schema: Any) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": [kind, "null"], **schema}}


# The fields have no defaults: a form would store them, and beside a url they would contradict it.
_CONNECTION_FIELDS = {
    "url": _field(
        "URL",
        "string",
        "Instead of host, port and the fields below: embedded:///absolute/folder, unix:///path, redis+sentinel://…",
    ),
    "db": _field("Database", "integer", "Number of the database; 0 when empty", minimum=0),
    "auth_env": _field(
        "Password variable",
        "string",
        "Name of the environment variable that holds the password, on the workers and on Spark executors",
    ),
    "sentinel_service": _field("Sentinel service", "string", "Name of the service; the host lists the Sentinels: a,b"),
    "sentinel_login": _field("Sentinel username", "string", "User of the Sentinels; empty for the default user"),
    "sentinel_auth_env": _field(
        "Sentinel password variable", "string", "Name of the environment variable that holds the Sentinels' password"
    ),
    "cluster": _field("Cluster", "boolean", "Whether the host lists nodes of a cluster: a:6379,b:6379"),
    "ssl": _field("TLS", "boolean", "Connect with TLS"),
    "ssl_ca_certs": _field("CA certificates", "string", "Path of the file with the authorities to trust"),
    "ssl_certfile": _field("Client certificate", "string", "Path of the client's certificate"),
    "ssl_keyfile": _field("Client key", "string", "Path of the client's private key"),
    "ssl_cert_reqs": _field("Certificate check", "string", "required (when empty), optional or none"),
    "ssl_check_hostname": _field("Check the host name", "boolean", "Whether the certificate must name the host"),
}
