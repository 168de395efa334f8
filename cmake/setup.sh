#!/bin/sh
# Installs what building ashlar needs and this machine lacks. `sh cmake/setup.sh ci` adds what the further checks need:
# clang with its sanitizers, and a compiler and emulator for AArch64.
#
# A library the system does not package is left to CMake, which fetches its source.
set -eu

# One need a line: a program that proves it is there (- for a library, which the package manager is asked about), then
# its package under apt, dnf, pacman and brew (- where there is none).
needs='
cmake       cmake               cmake               cmake          cmake
ninja       ninja-build         ninja-build         ninja          ninja
c++         g++                 gcc-c++             gcc            gcc
pkg-config  pkg-config          pkgconf-pkg-config  pkgconf        pkg-config
git         git                 git                 git            git
gnuplot     gnuplot-nox         gnuplot-minimal     gnuplot        gnuplot
-           libeigen3-dev       eigen3-devel        eigen          eigen
-           libxsimd-dev        xsimd-devel         xsimd          xsimd
-           catch2              catch-devel         catch2         catch2
-           libbenchmark-dev    google-benchmark-devel benchmark   google-benchmark
-           nlohmann-json3-dev  json-devel          nlohmann-json  nlohmann-json
-           libcli11-dev        cli11-devel         cli11          cli11
-           libdlpack-dev       -                   -              -
-           libboost-dev        boost-devel         boost          boost
-           liblbfgspp-dev      -                   -              -
'
if [ "${1:-}" = ci ]; then
  needs="$needs
clang++     clang               clang               clang          -
-           libclang-rt-dev     compiler-rt         compiler-rt    -
-           libomp-dev          libomp-devel        openmp         -
aarch64-linux-gnu-g++ g++-aarch64-linux-gnu - aarch64-linux-gnu-gcc -
qemu-aarch64-static qemu-user-static qemu-user-static-aarch64 qemu-user-static -
"
fi

manager=none
for candidate in apt-get dnf pacman brew; do
  if command -v "$candidate" >/dev/null; then manager=$candidate && break; fi
done

installed() {
  case $manager in
    apt-get) dpkg-query -W -f '${Status}\n' "$1" 2>/dev/null | grep -q '^install ok' ;;
    dnf) rpm -q "$1" >/dev/null 2>&1 ;;
    pacman) pacman -Q "$1" >/dev/null 2>&1 ;;
    brew) brew list --versions "$1" >/dev/null 2>&1 ;;
    *) false ;;
  esac
}

as_root() {
  if [ "$(id -u)" != 0 ] && command -v sudo >/dev/null; then sudo "$@"; else "$@"; fi
}

missing=
while read -r program apt dnf pacman brew; do
  case $manager in
    apt-get) package=$apt ;; dnf) package=$dnf ;; pacman) package=$pacman ;; brew) package=$brew ;;
    *) package=$program ;;
  esac
  if [ -z "$program" ] || [ "$package" = - ]; then continue; fi
  if [ "$program" != - ] && command -v "$program" >/dev/null; then continue; fi
  installed "$package" || missing="$missing $package"
done <<END
$needs
END

if [ -n "$missing" ]; then
  echo "Missing:$missing"
  # shellcheck disable=SC2086  # the names are split into words on purpose
  case $manager in
    apt-get) as_root apt-get update -q && as_root env DEBIAN_FRONTEND=noninteractive \
               apt-get install -q -y --no-install-recommends $missing ;;
    dnf) as_root dnf install -y $missing ;;
    pacman) as_root pacman -S --needed --noconfirm $missing ;;
    brew) brew install $missing ;;
    *) false ;;
  esac || echo "Could not install all of$missing. What CMake can fetch it will; please install the rest yourself." >&2
fi

# Without these three there is nothing to go on with.
for program in cmake ninja c++; do
  if ! command -v "$program" >/dev/null; then
    echo "Please install $program: ashlar needs CMake 3.25 or newer, Ninja, and gcc 12 or clang 14 or newer." >&2
    exit 1
  fi
done
