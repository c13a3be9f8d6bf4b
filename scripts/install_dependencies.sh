#!/usr/bin/env bash
# Installs what building, testing and running Farhop needs on Debian 12. Asks apt only for what is missing, so a
# second run costs nothing. Root, or a user with sudo.
set -euo pipefail

packages=(
  build-essential cmake ninja-build mold pkg-config git python3 python3-numpy
  # Tests let it write the files that farhop import reads.
  python3-torch
  libtorch-dev libtensorpipe-dev libgloo-dev libfabric-dev libhwloc-dev libgoogle-glog-dev libabsl-dev
  libcli11-dev nlohmann-json3-dev libyaml-cpp-dev libmetis-dev libxxhash-dev prometheus-cpp-dev
  zlib1g-dev libzstd-dev
  libgtest-dev libgmock-dev
  # For tests/slurm: a Slurm of two nodes on one machine.
  slurmctld slurmd slurm-client munge
  # farhop run on hosts, farhop dispatch, and the tests of both, which make networks of their own.
  openssh-client openssh-server rsync iproute2 util-linux procps
  # Without it Debian's libtorch multiplies matrices with the reference BLAS, several times slower.
  libopenblas0-pthread
)

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

sudo=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "install ${missing[*]} as root, or install sudo" >&2; exit 1; }
  sudo=(sudo)
fi
echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${sudo[@]}" apt-get update -q
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
