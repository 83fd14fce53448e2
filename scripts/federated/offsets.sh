#!/bin/sh
# Prints the offsets of internal/mujoco/fields.go, in bytes, from the headers of MuJoCo 4.0.0. Needs pip and a C compiler.
set -eu
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
python3 -m pip download --quiet --disable-pip-version-check --no-deps --python-version 3.11 --only-binary=:all: \
  --dest "$work" mujoco-core==4.0.0
python3 -m zipfile -e "$work"/*.whl "$work"
cat >"$work/offsets.c" <<'C'
#include <mujoco/mujoco.h>
#include <stddef.h>
#include <stdio.h>
#define OFFSET(of, field) printf(#of "." #field " %zu\n", offsetof(of, field))
int main(void) {
  OFFSET(mjData, cinert), OFFSET(mjData, cvel), OFFSET(mjData, qfrc_actuator), OFFSET(mjData, cfrc_ext);
  OFFSET(mjData, subtree_com), OFFSET(mjModel, nbody);
}
C
cc -I"$work/mujoco/include" "$work/offsets.c" -o "$work/offsets"
"$work/offsets"
