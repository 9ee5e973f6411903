#!/usr/bin/env bash
# Run the quickstart, or with `demo-ui` the demo of the web page, in a small environment under build/ that needs neither
# Java nor an orchestrator. `make setup` makes the complete one, which is taken where it is there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly WHAT=${1:-quickstart}
readonly VENV=build/$WHAT-venv
case $WHAT in
  quickstart) EXTRAS=embedded,fast RUN=(example_dags/quickstart.py) ;;
  demo-ui) EXTRAS=embedded,fast,web RUN=(-m sluicegate.web.demo) ;;
  *) printf 'quickstart.sh [quickstart|demo-ui], not %s\n' "$WHAT" >&2 && exit 2 ;;
esac
readonly EXTRAS RUN

say() { printf '%s\n' "$*" >&2; }

# Prints the first Python that the package supports, or nothing.
find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14}; do
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
}

# The folder, because its path is written into the environment, and what decides which packages it has.
fingerprint() { { pwd -P; cat pyproject.toml; } | sha256sum; }

make_venv() {
  local python lock constraint=()
  python=$(find_python)
  if [[ -z $python ]]; then
    say "Missing on this machine: Python 3.11 or newer with its venv module. Install it, then run make again:"
    say "  $([[ $EUID -eq 0 ]] || echo 'sudo ')apt-get install -y python3 python3-venv"
    return 1
  fi
  say "Making $VENV with $("$python" --version): about fifteen seconds, 15 MB of downloads."
  rm -rf "$VENV"
  "$python" -m venv "$VENV"
  lock=locks/py$("$VENV/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])').txt
  [[ ! -f $lock ]] || constraint=(--constraint "$lock")
  "$VENV/bin/pip" install --quiet --disable-pip-version-check "${constraint[@]}" --editable ".[$EXTRAS]" 2> >(grep -v '^WARNING: Location' >&2)
  fingerprint >"$VENV/made-from"
}

main() {
  local python=$VENV/bin/python
  if [[ -x .venv/bin/python && -f .venv/.sluicegate-setup ]]; then
    python=.venv/bin/python # `make setup` was here, and its environment has everything
  elif [[ ! -f $VENV/made-from || $(fingerprint) != "$(<"$VENV/made-from")" ]]; then
    make_venv
  fi
  [[ $WHAT == quickstart ]] || exec "$python" "${RUN[@]}" "${@:2}"
  "$python" "${RUN[@]}"
  say "Done after $SECONDS s. Read ${RUN[0]}, change it, and run it again: $python ${RUN[0]}"
}

main "$@"
