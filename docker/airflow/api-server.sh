#!/bin/sh
# Start the API server. Airflow opens the file of its passwords for writing, so it gets a copy of the secret.
set -eu

umask 077
printf '{"admin": "%s"}\n' "$(cat /run/secrets/airflow_admin_password)" >"$AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"
exec airflow api-server
