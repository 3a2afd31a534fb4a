#!/usr/bin/env bash
# Runs a command where /dev has the files of GPUs, for programs that list the folder: device_files.sh GPUS COMMAND...
# It needs a mount namespace; exit code 77: this host allows none.
set -euo pipefail
if [[ ${1:-} != inside ]]; then
  unshare --user --map-root-user --mount true 2>/dev/null || exit 77
  exec unshare --user --map-root-user --mount -- "$0" inside "$@"
fi
GPUS=$2
shift 2
DEV=$(mktemp -d -p "${TEST_TMPDIR:-/tmp}")
mount -t tmpfs dev "$DEV"
for file in null zero full random urandom; do
  touch "$DEV/$file"
  mount --bind "/dev/$file" "$DEV/$file"
done
mkdir "$DEV/shm"
mount --rbind /dev/shm "$DEV/shm"
ln -s /proc/self/fd "$DEV/fd"
touch "$DEV/nvidiactl"
for ((i = 0; i < GPUS; ++i)); do touch "$DEV/nvidia$i"; done
mount --rbind "$DEV" /dev
exec "$@"
