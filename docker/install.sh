#!/usr/bin/env bash
# Install packages while an image is built, with the versions of the lock of its Python.
#
# Usage: install.sh tools PACKAGE ...     into /opt/tools, with pip
#        install.sh venv REQUIREMENT ...  into /opt/venv, with the uv of /opt/tools; `sluicegate[...]` is the project's wheel
#
# Packages come from /wheelhouse if it holds any wheel, and from the configured package index otherwise.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

lock=locks/py$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])').txt
[[ -f $lock ]] || { echo "install.sh: there is no $lock; BASE needs Python 3.11 to 3.14" >&2; exit 1; }
readonly lock

from=()
if compgen -G '/wheelhouse/*.whl' >/dev/null; then
  from=(--no-index --find-links /wheelhouse)
fi
readonly from

kind=$1
shift
case $kind in
  tools)
    python3 -m venv /opt/tools
    /opt/tools/bin/python -m pip install --quiet --no-cache-dir --disable-pip-version-check "${from[@]}" --constraint "$lock" "$@"
    ;;
  venv)
    [[ -d /opt/venv ]] || python3 -m venv --without-pip /opt/venv
    wheel=$(echo /opt/tools/wheel/sluicegate-*.whl)
    wanted=()
    for requirement; do
      [[ $requirement != sluicegate* ]] || requirement="$requirement @ file://$wheel"
      wanted+=("$requirement")
    done
    # pyproject.toml also says which requirement of a provider is overridden: the folder matters to uv.
    # A root file system that nobody can write to keeps no bytecode, so it is made here.
    /opt/tools/bin/uv pip install --quiet --python /opt/venv/bin/python --no-cache --link-mode copy --compile-bytecode \
      "${from[@]}" --constraint "$lock" "${wanted[@]}"
    ;;
  *)
    echo "install.sh: tools or venv, not $kind" >&2
    exit 2
    ;;
esac
