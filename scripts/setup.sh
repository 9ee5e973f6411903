#!/usr/bin/env bash
# Make .venv from the lock of its Python version; say first what only the system can give. Does nothing when up to date.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly STAMP=.venv/.sluicegate-setup
readonly NEEDED_GB=4
readonly OLDEST_JAVA=17

# What .venv was made from: the lock, the project file, the version and the folder, whose path is written into its scripts.
fingerprint() {
  local minor
  minor=$(sed -n 's/^version = \([0-9]*\.[0-9]*\).*/\1/p' .venv/pyvenv.cfg)
  { pwd -P; cat "locks/py$minor.txt" pyproject.toml scripts/setup.sh; grep '^__version__' src/sluicegate/__init__.py; } |
    sha256sum
}

up_to_date() {
  [[ -x .venv/bin/python && -f $STAMP ]] && [[ $(fingerprint) == "$(<"$STAMP")" ]]
}

say() { printf '%s\n' "$*" >&2; }

step() { say "[$1/3] $2  (${SECONDS} s so far)"; }

# Prints the first Python that the project supports, or nothing. 3.14 only if PYTHON names it: it has a lock, and no promise.
find_python() {
  local candidate newest=13
  [[ -z ${PYTHON:-} ]] || newest=14
  for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if "$candidate" -c "import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, $newest))" 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
}

# The Java that Spark will start: the one in JAVA_HOME when that is set, else the one on PATH.
java_version() {
  local java=java
  [[ -z ${JAVA_HOME:-} ]] || java=$JAVA_HOME/bin/java
  "$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1 || true
}

java_package() {
  # Debian 13 and later no longer carry Java 17.
  local id='' release=''
  if [[ -r /etc/os-release ]]; then
    # shellcheck disable=SC1091  # the machine's own file
    id=$(. /etc/os-release; echo "$ID")
    # shellcheck disable=SC1091
    release=$(. /etc/os-release; echo "${VERSION_ID:-0}")
  fi
  if [[ $id == debian && ${release%%.*} -ge 13 ]]; then echo openjdk-21-jre-headless; else echo openjdk-17-jre-headless; fi
}

# Looks for everything before anything is installed, so that one command puts all of it right.
check_system() {
  local python=$1 java missing=() reasons=() free_kb
  if [[ -z $python ]]; then
    reasons+=("Python 3.11, 3.12 or 3.13 (looked for ${PYTHON:-python3, python3.13, python3.12 and python3.11})")
    missing+=(python3 python3-venv)
  elif ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
    reasons+=("the venv module of $python")
    if [[ $python == python3.* ]]; then missing+=("$python-venv"); else missing+=(python3-venv); fi
  fi
  java=$(java_version)
  if [[ ${java:-0} -lt $OLDEST_JAVA ]]; then
    reasons+=("Java $OLDEST_JAVA or newer, which Spark needs (found ${java:-none}${JAVA_HOME:+ in JAVA_HOME})")
    missing+=("$(java_package)")
  fi
  if [[ ${#missing[@]} -gt 0 ]]; then
    say "Missing on this machine:"
    printf '  - %s\n' "${reasons[@]}" >&2
    say "Install with one command, then run make again:"
    say "  $([[ $EUID -eq 0 ]] || echo 'sudo ')apt-get install -y ${missing[*]}"
    [[ -z ${JAVA_HOME:-} || ${java:-0} -ge $OLDEST_JAVA ]] || say "and unset JAVA_HOME, or let it name the new Java."
  fi
  free_kb=$(df -Pk . | awk 'NR == 2 { print $4 }')
  if [[ ! -f $STAMP && $free_kb -lt $((NEEDED_GB * 1024 * 1024)) ]]; then
    say "Missing on this machine: $NEEDED_GB GB of free disk in $PWD ($((free_kb / 1024)) MB are free)."
    return 1
  fi
  [[ ${#missing[@]} -eq 0 ]]
}

# Keeps a .venv that works; makes a new one when it is absent, was moved, or was interrupted half way.
make_venv() {
  if [[ -f .venv/pyvenv.cfg ]] && grep -qF "$(pwd -P)/.venv" .venv/pyvenv.cfg && .venv/bin/python -m pip --version &>/dev/null; then
    return
  fi
  rm -rf .venv
  "$1" -m venv .venv
}

install() {
  local lock uv # uv comes from the lock like everything else
  lock=locks/py$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])').txt
  [[ -f $lock ]] || { say ".venv has a Python without a lock ($lock): remove .venv and run make setup again."; return 1; }
  uv=$(grep "^uv==" "$lock") || { say "$lock has no uv: run bash scripts/lock.sh."; return 1; }
  .venv/bin/python -m pip install --quiet --disable-pip-version-check "$uv" 2> >(grep -v '^WARNING: Location' >&2)
  step 2 "installing $(wc -l <"$lock") packages from $lock"
  .venv/bin/uv pip install --python .venv/bin/python -r "$lock"
  step 3 "installing this project, editable"
  .venv/bin/uv pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation --editable .
}

main() {
  up_to_date && return
  local python
  python=$(find_python)
  check_system "$python"
  if [[ ! -f $STAMP ]]; then
    say "Setting up .venv with $("$python" --version): one to five minutes, 0.7 GB of downloads (most of it PySpark), $NEEDED_GB GB of disk with the package cache."
  fi
  step 1 "making .venv"
  make_venv "$python"
  rm -f "$STAMP"
  install
  fingerprint >"$STAMP"
  say "Ready after $SECONDS s. Next: make quickstart, make demo, make test."
}

main
