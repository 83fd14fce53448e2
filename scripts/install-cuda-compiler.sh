#!/usr/bin/env bash
# Installs what compiles XLA programs for NVIDIA's GPUs, for this user, and prints its folder. No GPU is needed, nor CUDA.
#
#   scripts/install-cuda-compiler.sh [DIR]    DIR: ${XDG_DATA_HOME:-~/.local/share}/posttrain, where posttrain looks
#
# `posttrain plan --device h100` uses it. The PyPI packages are jax-cuda12-pjrt (XLA's plugin for CUDA) and
# nvidia-cuda-nvcc-cu12 (ptxas and libdevice); 0.2 GB are downloaded and take 0.6 GB. What pip downloads must have the
# SHA-256 below before it is unpacked. A second run does nothing. Progress goes to standard error. A failure prints one
# line, and the exit code is 1.
. "$(dirname "${BASH_SOURCE[0]}")/install-common.sh"

packages="jax-cuda12-pjrt==0.10.2 --hash=sha256:806d1fd29038b6acf5a2b289dd62192abea977ee26aef60ea295b1d28a23acf8
nvidia-cuda-nvcc-cu12==12.9.86 --hash=sha256:5d6a0d32fdc7ea39917c20065614ae93add6f577d840233237ff08e9a38f58f0"

[ $# -le 1 ] && [ "${1:-}" != -h ] && [ "${1:-}" != --help ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ "$(uname -sm)" = "Linux x86_64" ] || fail "only Linux on x86_64 is supported, this is $(uname -sm)"
target="$(make_folder "${1:-}")/cuda-compiler"
if [ "$(cat "$target/.packages" 2>/dev/null)" = "$packages" ]; then
  echo "$target"
  exit 0
fi
python3 -m pip --version >/dev/null 2>&1 || fail "no pip: it needs python3 with pip"

work="$(mktemp -d "$target.new.XXXXXX")"
trap 'rm -rf "$work"' EXIT
say "getting jax-cuda12-pjrt and nvidia-cuda-nvcc-cu12 with pip"
echo "$packages" >"$work/requirements.txt"
{
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
    --dest "$work" -r "$work/requirements.txt" &&
    for wheel in "$work"/*.whl; do python3 -m zipfile -e "$wheel" "$work/new"; done &&
    chmod 755 "$work/new/nvidia/cuda_nvcc/bin/"* && echo "$packages" >"$work/new/.packages"
} >"$work/log" 2>&1 || fail "$(tail -n 1 "$work/log")"
rm -rf "$target" && mv "$work/new" "$target" || fail "cannot write $target"
echo "$target"
