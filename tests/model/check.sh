#!/usr/bin/env bash
# Checks a model with spin: tests/model/check.sh leader.pml [-DNAME=VALUE ...]. Exit code 0: it holds in every state;
# 1: it does not, and the last steps before the violation are shown; 2: the check failed. With -DLIVENESS the model's
# formula is checked with weak fairness.
set -uo pipefail
model=$(realpath "$1") || exit 2
shift
folder=$(mktemp -d) || exit 2
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 2
spin "$@" -a "$model" >spin.log 2>&1 || { cat spin.log; exit 2; }
checks=(-DSAFETY) search=()
[[ " $* " != *" -DLIVENESS "* ]] || checks=(-DNFAIR=3) search=(-a -f)
# A small world takes less time to check than to compile.
gcc "${CFLAGS:--O0}" -w "${checks[@]}" -DCOLLAPSE -o pan pan.c || exit 2
./pan -m1000000 -w22 "${search[@]}" >pan.log 2>&1 || { cat pan.log; exit 2; }
grep -E '^pan:1|states, stored|depth reached' pan.log
grep -q 'search depth too small\|out of memory' pan.log && { cat pan.log; exit 2; }
grep -q 'errors: 0' pan.log && exit 0
spin "$@" -k ./*.trail -p "$model" | grep -E '\[(holder|latest|record|writes|state|epoch|round|told)[^a-z_]' |
  sed -E 's/\(state [0-9]+\)//' | tail -n 60
exit 1
