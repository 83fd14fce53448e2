#!/usr/bin/env bash
# Installs ONNX Runtime's CPU library, the fast engine on a CPU, for this user, and prints its path.
#
#   scripts/install-onnxruntime.sh [DIR]     DIR: ${XDG_DATA_HOME:-~/.local/share}/posttrain, where posttrain looks
#
# The library is in the PyPI package onnxruntime and, if pip cannot get that, in the npm package onnxruntime-node. Both
# download with their own settings. Only the library is kept, and nothing is executed. A second run does nothing.
# Progress goes to standard error. A failure prints one line, and the exit code is 1.
set -euo pipefail

wheel_version=1.31.1 # of onnxruntime; its Python is only the name on the wheel
wheel_python=3.12
npm_version=1.30.0 # of onnxruntime-node

say() { echo "install-onnxruntime: $*" >&2; }
fail() { say "$*"; exit 1; }

# library_version FILE prints a library's version; it fails if the file cannot be loaded.
library_version() {
  python3 - "$1" 2>/dev/null <<'PY'
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.OrtGetApiBase.restype = ctypes.POINTER(ctypes.c_void_p)
get_version = ctypes.CFUNCTYPE(ctypes.c_char_p)(library.OrtGetApiBase()[1])
print(get_version().decode())
PY
}

# is_library FILE VERSION checks that a file is the library of that version.
is_library() {
  [ -s "$1" ] || return 1
  if command -v python3 >/dev/null; then
    [ "$(library_version "$1")" = "$2" ]
  else # the best check without loading it
    [ "$(head -c 4 "$1" | tail -c 3)" = ELF ] && grep -q "$2" "$1"
  fi
}

# from_pypi DIR prints the path of the library unpacked from the wheel.
from_pypi() {
  command -v python3 >/dev/null || { echo "no python3"; return 1; }
  python3 -m pip --version >/dev/null 2>&1 || { echo "no pip"; return 1; }
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --python-version "$wheel_python" --dest "$1" "onnxruntime==$wheel_version" >"$1/log" 2>&1 ||
    { tail -n 1 "$1/log"; return 1; }
  python3 -m zipfile -e "$1"/onnxruntime-*.whl "$1/wheel" >"$1/log" 2>&1 || { tail -n 1 "$1/log"; return 1; }
  one_of "$1"/wheel/onnxruntime/capi/libonnxruntime.so.[0-9]*
}

# from_npm DIR prints the path of the library unpacked from the package.
from_npm() {
  command -v npm >/dev/null || { echo "no npm"; return 1; }
  (cd "$1" && npm pack --loglevel=error "onnxruntime-node@$npm_version") >"$1/log" 2>&1 ||
    { grep -m 1 . "$1/log"; return 1; }
  tar -xzf "$1"/onnxruntime-node-*.tgz -C "$1" >"$1/log" 2>&1 || { tail -n 1 "$1/log"; return 1; }
  one_of "$1"/package/bin/napi-v*/linux/"$npm_machine"/libonnxruntime.so.[0-9]*
}

one_of() { [ -f "$1" ] && echo "$1" || { echo "the package holds no ${1##*/}"; return 1; }; }

# put FILE VERSION installs a library under its full name, and prints the path.
put() {
  is_library "$1" "$2" || fail "the downloaded ${1##*/} does not load as version $2 here"
  local target="$dir/libonnxruntime.so.$2"
  cp "$1" "$target.new" && chmod 755 "$target.new" && mv -f "$target.new" "$target" || fail "cannot write $target"
  echo "$target"
}

[ $# -le 1 ] && [ "${1:-}" != -h ] && [ "${1:-}" != --help ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ "$(uname -s)" = Linux ] || fail "only Linux is supported, this is $(uname -s)"
case "$(uname -m)" in
  x86_64) npm_machine=x64 ;;
  aarch64 | arm64) npm_machine=arm64 ;;
  *) fail "only x86_64 and aarch64 are supported, this is $(uname -m)" ;;
esac

dir="${1:-${XDG_DATA_HOME:-${HOME:?neither XDG_DATA_HOME nor HOME is set}/.local/share}/posttrain}"
mkdir -p "$dir" 2>/dev/null || fail "cannot make $dir"
dir="$(cd "$dir" && pwd)"
for version in "$wheel_version" "$npm_version"; do
  if is_library "$dir/libonnxruntime.so.$version" "$version"; then
    echo "$dir/libonnxruntime.so.$version"
    exit 0
  fi
done

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir "$work/pypi" "$work/npm"
say "getting onnxruntime $wheel_version with pip"
if found="$(from_pypi "$work/pypi")"; then
  put "$found" "$wheel_version"
  exit 0
fi
why="$found"
say "pip: $why; getting onnxruntime-node $npm_version with npm"
if found="$(from_npm "$work/npm")"; then
  put "$found" "$npm_version"
  exit 0
fi
fail "could not get ONNX Runtime (pip: $why; npm: $found)"
