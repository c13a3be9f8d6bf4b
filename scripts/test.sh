#!/usr/bin/env bash
# Builds and runs every test: optimised, then under AddressSanitizer + UndefinedBehaviorSanitizer, then under
# ThreadSanitizer (both without the parts that link libtorch).
#
#   scripts/test.sh [--no-install] [--full] [--preset NAME]
#
#   --no-install    do not touch packages
#   --full          also the tests that take long (label "full"), and farhop-bench under the sanitizers
#   --preset NAME   only this preset: release, asan, tsan or dev
set -euo pipefail
cd "$(dirname "$0")/.."

install=yes full=no presets=(release asan tsan)
while [ $# -gt 0 ]; do
  case "$1" in
    --no-install) install=no ;;
    --full) full=yes ;;
    --preset) shift; presets=("${1:?--preset needs a name}") ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "unknown option $1; see --help" >&2; exit 2 ;;
  esac
  shift
done

[ "$install" = no ] || scripts/install_dependencies.sh

labels=()
[ "$full" = yes ] || labels=(-LE full)
# A clean clone finds nothing in a compiler cache; parsing the common headers once is what helps it.
configure=()
[ "${CI:-}" != true ] || configure=(-DFARHOP_CCACHE=OFF)
begin=$SECONDS
for preset in "${presets[@]}"; do
  echo "== $preset"
  start=$SECONDS
  benchmarks=ON
  [ "$full" = yes ] || case "$preset" in asan | tsan) benchmarks=OFF ;; esac
  cmake --preset "$preset" "${configure[@]}" -DFARHOP_BUILD_BENCHMARKS=$benchmarks >"/tmp/farhop-configure-$$.log" || { cat "/tmp/farhop-configure-$$.log"; exit 1; }
  rm -f "/tmp/farhop-configure-$$.log"
  cmake --build --preset "$preset"
  echo "built in $((SECONDS - start)) s"
  # Three at a time on two cores: half of the tests wait for processes and deadlines most of their time.
  ctest --preset "$preset" "${labels[@]}" --no-tests=error --parallel 3
done
echo "all in $((SECONDS - begin)) s"
