#!/usr/bin/env bash
# Install Node's client ioredis into build/node, for the tests of streams with another language.
# Prints the folder of the package to stdout; nothing where Node or npm is missing or no registry can be reached.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly VERSION=5.4.1
readonly FOLDER=$PWD/build/node
readonly PACKAGE=$FOLDER/node_modules/ioredis

say() { printf '%s\n' "$*" >&2; }

works() { [[ -r $PACKAGE/package.json ]] && grep -q "\"version\": \"$VERSION\"" "$PACKAGE/package.json"; }

if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
  say "Node or npm is missing: apt-get install nodejs npm"
elif works || { mkdir -p "$FOLDER" && npm install --silent --no-audit --no-fund --no-save --prefix "$FOLDER" "ioredis@$VERSION" >&2; }; then
  printf '%s\n' "$PACKAGE"
else
  say "ioredis $VERSION could not be installed"
fi
