#!/usr/bin/env bash
# Resolve pyproject.toml once per Python version into locks/pyX.Y.txt: `name==version` lines and nothing else.
# Keeps the versions that are locked already; `--upgrade` asks for the newest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for version in 3.11 3.12 3.13 3.14; do
  lock=locks/py$version.txt
  echo "resolving for Python $version ..." >&2
  .venv/bin/uv pip compile --quiet --python-version "$version" --python-platform linux \
    --extra all --group dev --no-emit-package sluicegate \
    --no-header --no-annotate "$@" --output-file "$lock" pyproject.toml
  if grep -vnE '^[A-Za-z0-9._-]+==[A-Za-z0-9.+!_-]+$' "$lock"; then
    echo "$lock holds a line that is not name==version" >&2
    exit 1
  fi
  echo "$lock: $(wc -l <"$lock") packages" >&2
done
