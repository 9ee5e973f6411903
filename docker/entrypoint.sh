#!/bin/sh
# Run a command with the secrets that files hold: NAME_FILE=/run/secrets/... becomes NAME, the content of that file.
#
# The value exists in the memory of this process and its children only; `docker inspect` shows the path.
set -eu

for name in $(env | sed -n 's,^\([A-Za-z0-9_]*\)_FILE=/run/secrets/.*,\1,p'); do
  eval "path=\$${name}_FILE"
  if [ ! -r "$path" ]; then
    echo "sluicegate-entrypoint: cannot read $path, which ${name}_FILE names; docker/secrets.sh makes it" >&2
    exit 78
  fi
  value=$(cat "$path")
  export "$name=$value"
done
unset value

exec "$@"
