#!/usr/bin/env bash
# Installs for this user what tests want beyond Go, and prints where it is. CONTRIBUTING.md says what each name is.
#
#   scripts/install-test-needs.sh [NAME…]    NAME: onnx, xla, mujoco, cuda-compiler, huggingface_hub, openai-node,
#                                            openai-python, model or templates; without names all of them
#
# The first four go to ${XDG_DATA_HOME:-~/.local/share}/posttrain, with their own scripts, the others to the folder
# tests in it. It needs Go, npm, and python3 with pip and venv. A second run does nothing. Progress goes to standard
# error. A failure prints one line, and the exit code is 1.
. "$(dirname "${BASH_SOURCE[0]}")/install-common.sh"

names="onnx xla mujoco cuda-compiler huggingface_hub openai-node openai-python model templates"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

hub=huggingface_hub==2.4.0
client=openai==3.57.0
trl=trl==1.16.0 # has templates of released models
trl_sha=c4726e139dd40e1a41661511c639c8a68416782b2e3e8c0befebd77bb7ba0396
renderer="transformers==5.23.0 jinja2==3.1.6" # works without PyTorch

# get prints where a need is. A missing one is installed first.
get() {
  case "$1" in
    onnx) "$here/install-onnxruntime.sh" ;;
    xla) "$here/install-pjrt-cpu.sh" ;;
    mujoco) "$here/install-mujoco.sh" ;;
    cuda-compiler) "$here/install-cuda-compiler.sh" ;;
    huggingface_hub) keep "$1" "$hub" venv "$hub" ;;
    openai-node) keep "$1" "$(sha "$here/serve/package-lock.json")" npm_packages "$here/serve" ;;
    openai-python) keep "$1" "$client" venv "$client" ;;
    model) "$here/models/smollm2.sh" "$dir/$1" ;;
    templates) keep "$1.json" "$trl, $renderer, $(sha "$here/oracle/released_templates.py")" templates ;;
  esac
}

# keep FILE VERSION COMMAND… makes $work/new with a command and moves it to FILE, unless that has this version.
keep() {
  target="$dir/$1"
  if [ ! -e "$target" ] || [ "$(cat "$dir/.$1" 2>/dev/null)" != "$2" ]; then
    say "getting ${1%.json}"
    work="$(mktemp -d "$dir/.new.XXXXXX")"
    "${@:3}"
    rm -rf "$target" && mv "$work/new" "$target" && echo "$2" >"$dir/.$1" || fail "cannot write $target"
    rm -rf "$work"
  fi
  echo "$target"
}

venv() { venv_in "$work/new" "$@"; }

# venv_in DIR PACKAGE…
venv_in() {
  quietly python3 -m venv "$1"
  quietly "$1/bin/python" -m pip install --quiet --disable-pip-version-check "${@:2}"
}

# npm_packages DIR gets what the package-lock.json there names, with its hashes.
npm_packages() {
  mkdir "$work/new"
  cp "$1"/package*.json "$work/new"
  quietly npm ci --prefix "$work/new" --omit=dev --ignore-scripts --no-audit --no-fund --loglevel=error
}

# templates renders conversations with the templates in TRL's package.
templates() {
  echo "$trl --hash=sha256:$trl_sha" >"$work/requirements.txt"
  quietly python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
    --dest "$work" -r "$work/requirements.txt"
  quietly python3 -m zipfile -e "$work"/*.whl "$work/wheel"
  # shellcheck disable=SC2086 # two packages
  venv_in "$work/venv" $renderer
  quietly "$work/venv/bin/python" "$here/oracle/released_templates.py" "$work/wheel/trl/chat_templates" "$work/new"
}

# quietly COMMAND… shows a line of what a command printed if it fails.
quietly() {
  command -v "$1" >/dev/null || fail "${target##*/}: no $1"
  "$@" >"$work/log" 2>&1 ||
    fail "${target##*/}: $(grep -m 1 "^npm error" "$work/log" || grep . "$work/log" | tail -n 1)"
}

sha() { sha256sum <"$1"; }

[ "${1:-}" != -h ] && [ "${1:-}" != --help ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
# shellcheck disable=SC2086 # names
[ $# -gt 0 ] || set -- $names
for name; do
  case " $names " in *" $name "*) ;; *) fail "found $name: want some of $names" ;; esac
done
dir="$(make_folder)/tests"
mkdir -p "$dir" 2>/dev/null || fail "cannot make $dir"
work=
trap 'rm -rf "$work"' EXIT
for name; do get "$name"; done
