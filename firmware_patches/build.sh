#!/bin/sh
# Compiles the onboard C for this machine: build/libonboard.so. Does nothing when it is newer than its sources.
set -eu
cd "$(dirname "$0")"
cc=${CC:-cc}
library=build/libonboard.so
if [ -f "$library" ] && [ -z "$(find src host build.sh -newer "$library" \( -name '*.[ch]' -o -name build.sh \) | head -n 1)" ]; then
  exit 0
fi
if ! command -v "${cc%% *}" >/dev/null 2>&1; then
  echo "onboard C: no compiler '$cc'; install one (Debian/Ubuntu: apt install gcc libc6-dev) or set CC" >&2
  exit 2
fi
mkdir -p build
fresh=build/libonboard.$$.so
trap 'rm -f "$fresh"' EXIT
# No contraction to fused multiply-add: the same sums on every machine.
$cc -O2 -std=c11 -Wall -Wextra -Werror -ffp-contract=off -fPIC -shared -o "$fresh" src/*.c host/*.c -lm
mv "$fresh" "$library"
