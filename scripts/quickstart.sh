#!/usr/bin/env bash
# From a fresh Debian 12 to a trained model: installs, builds, makes a data set of Debian's own package graph,
# partitions it in two, and trains GraphSAGE with 4 processes that play 2 machines.
#
#   scripts/quickstart.sh [--no-install] [--epochs N]
#
# Everything lands in build/. What is there already is not done again; only the training is.
set -euo pipefail
cd "$(dirname "$0")/.."

install=yes epochs=10
while [ $# -gt 0 ]; do
  case "$1" in
    --no-install) install=no ;;
    --epochs) shift; epochs="${1:?--epochs needs a number}" ;;
    -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "unknown option $1; see --help" >&2; exit 2 ;;
  esac
  shift
done

step() { printf '\n== %s\n' "$*"; }
work=build/quickstart
bin=build/release/bin

step "1/5 packages"
[ "$install" = no ] || scripts/install_dependencies.sh

step "2/5 build (preset release)"
cmake --preset release >/dev/null
cmake --build --preset release --target farhop farhop-sage
mkdir -p "$work"

step "3/5 data set: the dependency graph of Debian's packages"
if [ "$install" = yes ] && [ -z "$(apt-cache dumpavail 2>/dev/null | head -c 1)" ]; then
  # A fresh machine may have no package index yet.
  if [ "$(id -u)" -eq 0 ]; then apt-get update -q; else sudo apt-get update -q; fi
fi
scripts/make_debian_dataset --out "$work/debian"

step "4/5 partition in 2 with METIS"
# A store that an older build wrote may be one that this build does not read.
if [ "$work/store/graph.json" -nt "$work/debian/metadata.yaml" ] && "$bin/farhop" inspect "$work/store" >/dev/null 2>&1; then
  echo "$work/store is there already"
else
  "$bin/farhop" partition "$work/debian" --out "$work/store" --parts 2 --method metis --add-reverse --force
fi

step "5/5 train: 2 machines x 2 processes"
"$bin/farhop" run --graph "$work/store" --machines 2 --procs 2 -- \
  "$bin/farhop-sage" --fanouts 15,10 --batch-size 1024 --epochs "$epochs" --summary "$PWD/$work/summary.json"
echo "summary: $work/summary.json"
