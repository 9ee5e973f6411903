#!/usr/bin/env bash
# Fill docker/wheelhouse/ with the wheels of a lock, so that the images can be built without a package index.
#
# Usage: docker/local/wheelhouse.sh [PYTHON]    a Python of the same version and system as that of BASE
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly FOLDER=docker/wheelhouse
python=${1:-.venv/bin/python}
lock=locks/py$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])').txt
missing=$(mktemp)
trap 'rm -f "$missing"' EXIT

# A lock's line and a wheel's name agree once letter case, hyphens and underscores are made equal.
plain() { sed 's/[-_.]\+/-/g' | tr '[:upper:]' '[:lower:]'; }

comm -23 <(sed 's/==/-/' "$lock" | plain | sort) \
  <(find "$FOLDER" -name '*.whl' -printf '%f\n' | sed 's/^\([^-]*-[^-]*\)-.*/\1/' | plain | sort) >"$missing"
if [[ -s $missing ]]; then
  echo "fetching or building $(wc -l <"$missing") of the $(wc -l <"$lock") wheels of $lock" >&2
  sed 's/==/-/' "$lock" | plain | paste -d' ' - "$lock" | grep -F -f <(sed 's/$/ /' "$missing") | cut -d' ' -f2 |
    "$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$FOLDER" --requirement /dev/stdin \
      2> >(grep -v '^WARNING: Location' >&2)
fi
echo "$FOLDER holds $(find "$FOLDER" -name '*.whl' | wc -l) wheels" >&2
