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
