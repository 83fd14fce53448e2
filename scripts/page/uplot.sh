#!/usr/bin/env bash
# Brings the files of uPlot into recipe/view/page/uplot, in the version of package.json beside this script. npm compares
# the package with the hash in package-lock.json. `make uplot` runs it.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
to="$here/../../recipe/view/page/uplot"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cp "$here"/package*.json "$work"
npm ci --prefix "$work" --ignore-scripts --no-audit --no-fund --loglevel=error >&2
from="$work/node_modules/uplot"
install -m 644 "$from/dist/uPlot.iife.min.js" "$from/dist/uPlot.min.css" "$from/LICENSE" "$to"
(cd "$to" && sha256sum LICENSE uPlot.iife.min.js uPlot.min.css >SHA256SUMS)
