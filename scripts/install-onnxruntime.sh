#!/usr/bin/env bash
# Installs ONNX Runtime's CPU library, the fast engine on a CPU, for this user, and prints its path.
#
#   scripts/install-onnxruntime.sh [DIR]     DIR: ${XDG_DATA_HOME:-~/.local/share}/posttrain, where posttrain looks
#
# The library is in the PyPI package onnxruntime and, if pip cannot get that, in the npm package onnxruntime-node.
# Both download with their own settings. What they download must have the SHA-256 below before it is unpacked. Only
# the library is kept, and nothing of it is run or loaded. A second run does nothing. Progress goes to standard error.
# A failure prints one line, and the exit code is 1.
. "$(dirname "${BASH_SOURCE[0]}")/install-common.sh"

wheel_version=1.31.1 # of onnxruntime; its Python is only the name on the wheel
wheel_python=3.12
npm_version=1.30.0 # of onnxruntime-node

# SHA-256 of the packages, and of the libraries in them. A new version needs new ones.
npm_sha=6e3390d6b783e7be946fad629292799da28d0b42f84856e50d2c1b0383291e75
case "$(uname -m)" in
  x86_64)
    npm_machine=x64
    wheel_sha=1f3dea47f2f0e5117c2404cea7d21fd253ae7836a3bf167a501cdfbb2600d536
    wheel_library_sha=fc44112fbe06d7d689c57e11d3862031f64711007e4ee020f8eed5185fd2c1d3
    npm_library_sha=ffb75a925ba05e47b235bb66e3e3911714a80b328a9c9425539feb204aa32a23 ;;
  aarch64 | arm64)
    npm_machine=arm64
    wheel_sha=0b9a492176886992e0e875f06bc0367e333f5fff11711a2d642e18b02f3009cc
    wheel_library_sha=8aa3b76b28c778a2b1dd660d34161adb1d508c9ccd04ff9dc80e26eca5df8467
    npm_library_sha=1f549d46250b005580b597f4164984aaf75b3bcb9f3aeb07c7f8a8fe60b23c76 ;;
esac

# from_pypi DIR prints the path of the library unpacked from the wheel.
from_pypi() {
  command -v python3 >/dev/null || { echo "no python3"; return 1; }
  python3 -m pip --version >/dev/null 2>&1 || { echo "no pip"; return 1; }
  echo "onnxruntime==$wheel_version --hash=sha256:$wheel_sha" >"$1/requirements.txt"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
    --python-version "$wheel_python" --dest "$1" -r "$1/requirements.txt" >"$1/log" 2>&1 ||
    { tail -n 1 "$1/log"; return 1; }
  python3 -m zipfile -e "$1"/onnxruntime-*.whl "$1/wheel" >"$1/log" 2>&1 || { tail -n 1 "$1/log"; return 1; }
  one_of "$1"/wheel/onnxruntime/capi/libonnxruntime.so.[0-9]*
}

# from_npm DIR prints the path of the library unpacked from the package.
from_npm() {
  command -v npm >/dev/null || { echo "no npm"; return 1; }
  (cd "$1" && npm pack --loglevel=error "onnxruntime-node@$npm_version") >"$1/log" 2>&1 ||
    { grep -m 1 . "$1/log"; return 1; }
  has_sha "$1/onnxruntime-node-$npm_version.tgz" "$npm_sha" || { echo "the package has another SHA-256"; return 1; }
  tar -xzf "$1"/onnxruntime-node-*.tgz -C "$1" >"$1/log" 2>&1 || { tail -n 1 "$1/log"; return 1; }
  one_of "$1"/package/bin/napi-v*/linux/"$npm_machine"/libonnxruntime.so.[0-9]*
}

one_of() { [ -f "$1" ] && echo "$1" || { echo "the package holds no ${1##*/}"; return 1; }; }

# put_version FILE VERSION SHA256 installs a library under its full name, and prints the path.
put_version() {
  has_sha "$1" "$3" || fail "the downloaded ${1##*/} is not that of version $2: its SHA-256 is another"
  put "$1" "$dir/libonnxruntime.so.$2"
}

[ $# -le 1 ] && [ "${1:-}" != -h ] && [ "${1:-}" != --help ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ "$(uname -s)" = Linux ] || fail "only Linux is supported, this is $(uname -s)"
[ -n "${npm_machine:-}" ] || fail "only x86_64 and aarch64 are supported, this is $(uname -m)"
dir="$(make_folder "${1:-}")"
for installed in "$wheel_version $wheel_library_sha" "$npm_version $npm_library_sha"; do
  library="$dir/libonnxruntime.so.${installed% *}"
  if has_sha "$library" "${installed#* }"; then
    echo "$library"
    exit 0
  fi
done

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir "$work/pypi" "$work/npm"
say "getting onnxruntime $wheel_version with pip"
if found="$(from_pypi "$work/pypi")"; then
  put_version "$found" "$wheel_version" "$wheel_library_sha"
  exit 0
fi
why="$found"
say "pip: $why; getting onnxruntime-node $npm_version with npm"
if found="$(from_npm "$work/npm")"; then
  put_version "$found" "$npm_version" "$npm_library_sha"
  exit 0
fi
fail "could not get ONNX Runtime (pip: $why; npm: $found)"
