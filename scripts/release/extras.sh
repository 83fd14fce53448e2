#!/bin/sh
# extras.sh DIR: writes what an archive has besides the binary: manual pages to DIR/man1, and completions for shells to
# DIR/completions. The pages have the date of the last commit.
set -eu
cd "$(dirname "$0")/../.."
dir=$1
rm -rf "$dir"
mkdir -p "$dir/completions"
GOEXPERIMENT=simd go build -o "$dir/posttrain" ./cmd/posttrain
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) "$dir/posttrain" man "$dir/man1"
for shell in bash zsh fish powershell; do
  case $shell in
    bash | fish) name=posttrain.$shell ;;
    zsh) name=_posttrain ;;
    powershell) name=posttrain.ps1 ;;
  esac
  "$dir/posttrain" completion $shell > "$dir/completions/$name"
done
rm "$dir/posttrain"
