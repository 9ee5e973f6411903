#!/usr/bin/env bash
# Bring a Valkey server of a newer Debian onto this machine for the tests: its packages are unpacked into build/servers and
# installed nowhere, and it runs with that Debian's own loader, since the libraries of an older Debian do not do.
# Prints the path of a program to stdout, for SLUICEGATE_TEST_SERVERS; nothing where there is none to be had.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly RELEASE=trixie
readonly FOLDER=$PWD/build/servers
readonly PROGRAM=$FOLDER/bin/valkey-server
readonly KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

say() { printf '%s\n' "$*" >&2; }

# Where this machine gets its own packages from.
mirror() {
  {
    sed -n 's/^URIs: *\([^ ]*\).*/\1/p' /etc/apt/sources.list.d/*.sources || true
    sed -n 's/^deb \(\[[^]]*\] \)\?\([^ ]*\).*/\2/p' /etc/apt/sources.list /etc/apt/sources.list.d/*.list || true
  } 2>/dev/null | grep -E '/debian/?$' | head -n 1
}

works() { [[ -x $PROGRAM ]] && "$PROGRAM" --version 2>/dev/null | grep -q '^Valkey server v='; }

# apt with lists and a cache of its own, so that the machine's stay as they are.
apt_here() {
  local tool=$1
  shift
  "$tool" -o Dir::Etc::sourcelist="$FOLDER/apt/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$FOLDER/apt/lists" \
    -o Dir::Cache="$FOLDER/apt" -o APT::Sandbox::User=root \
    -o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 -qq "$@"
}

fetch() {
  local from packages
  from=$(mirror)
  [[ -r $KEYRING ]]
  mkdir -p "$FOLDER"/apt/{lists/partial,archives/partial} "$FOLDER"/{packages,root,bin}
  printf 'deb [signed-by=%s] %s %s main\n' "$KEYRING" "$from" "$RELEASE" >"$FOLDER/apt/sources.list"
  apt_here apt-get update
  packages=$(apt_here apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
    --no-enhances valkey-server | grep -E '^lib' | sort -u)
  # shellcheck disable=SC2086  # a list
  (cd "$FOLDER/packages" && apt_here apt-get download $packages valkey-server valkey-tools)
  for package in "$FOLDER"/packages/*.deb; do dpkg-deb -x "$package" "$FOLDER/root"; done
}

# The loader has another name and place on each kind of machine.
wrap() {
  local loader library server
  loader=$(unpacked 'ld-linux-*.so.*')
  library=$(dirname "$(unpacked libc.so.6)")
  server=$(unpacked bin/valkey-server)
  [[ -n $loader && -n $server ]]
  # shellcheck disable=SC2016  # for the script that is written
  printf '#!/bin/sh\nexec %q --argv0 valkey-server --library-path %q %q "$@"\n' "$loader" "$library" "$server" >"$PROGRAM"
  chmod +x "$PROGRAM"
}

# A program or library among what was unpacked, by its name.
unpacked() { find "$FOLDER/root" -path "*/$1" | head -n 1; }

if ! works; then
  # In a shell of its own: inside a condition of this one, `set -e` would not count.
  (set -e; fetch; wrap) >&2 &
  wait $! || say "Valkey of Debian $RELEASE cannot be had here; the tests do without it."
fi
if works; then echo "$PROGRAM"; fi
