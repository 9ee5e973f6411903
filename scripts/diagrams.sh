#!/usr/bin/env bash
# Draw the Mermaid diagrams of docs/ as pictures in docs/images, which the site shows instead of loading Mermaid.
# Each picture ends with the hash of its source, by which a test sees that it is up to date. Needs npm and Chromium.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly FOLDER=build/diagrams
mkdir -p "$FOLDER" docs/images
[[ -d $FOLDER/node_modules/mermaid ]] ||
  npm install --prefix "$FOLDER" --no-audit --no-fund --ignore-scripts --silent mermaid@12
.venv/bin/python -m scripts.draw "$FOLDER/node_modules/mermaid/dist/mermaid.min.js"
