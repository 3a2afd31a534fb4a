#!/usr/bin/env bash
# Installs the wheel on a bare Debian and runs the tutorial's command there: clean_root.sh WHEEL [SUITE]. As root, by
# hand: debootstrap fetches the system (SUITE: bookworm, or bullseye with glibc 2.31), in a minute or two. PyTorch comes
# from this checkout's .venv if that has the Python of SUITE; else a script without PyTorch runs. The last line is
# "passed".
set -Eeuo pipefail
SOURCE=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
WHEEL=${1:?usage: clean_root.sh WHEEL [SUITE]} SUITE=${2:-bookworm}
if [[ $(id -u) != 0 ]] || ! command -v debootstrap >/dev/null; then
  echo "needs root and debootstrap" >&2
  exit 2
fi

ROOT=$(mktemp -d)
clean_up() {
  local mount
  for mount in torch dev proc; do umount "$ROOT/$mount" 2>/dev/null || true; done
  # Nothing of the host is mounted there any more.
  if ! grep -q " $ROOT/" /proc/mounts; then rm -rf --one-file-system "$ROOT"; fi
}
trap clean_up EXIT
debootstrap --variant=minbase --include=python3,python3-venv "$SUITE" "$ROOT" >/dev/null
mkdir "$ROOT/torch" "$ROOT/job"
mount -t proc proc "$ROOT/proc"
mount --bind /dev "$ROOT/dev"
cp "$WHEEL" "$SOURCE"/examples/python/*.py "$ROOT/job"
cat >"$ROOT/job/plain.py" <<'PYTHON'
import os
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])
PYTHON

inside() { chroot "$ROOT" env -i PATH=/job/venv/bin:/usr/bin:/bin HOME=/root OMP_NUM_THREADS=1 sh -ec "cd /job; $1"; }
inside 'python3 -m venv venv; pip install -q --no-index ./*.whl; ddprun --version; rendezvousd --version'
script=plain.py
site=$(cd "$SOURCE" && echo .venv/lib/python3.*/site-packages)
folder=$(inside 'echo venv/lib/python3.*')
if [[ $site == */"$(basename "$folder")"/* && -d $SOURCE/$site/torch ]]; then
  mount --bind -o ro "$SOURCE/$site" "$ROOT/torch"
  echo /torch >"$ROOT/job/$folder/site-packages/torch.pth"
  script=toy_elastic.py
fi
echo "$SUITE, $(inside 'ldd --version | head -n 1'), $script:"
inside "ddprun --standalone --nproc-per-node=2 $script"
inside "python -m ddprun --standalone --nproc-per-node=2 $script"
node="ddprun --nnodes=2 --nproc_per_node=1 --rdzv_id=100 --rdzv_backend=c10d --rdzv_endpoint=127.0.0.1:29400 $script"
inside "$node & first=\$!; $node; wait \$first"
inside "python -c 'import ddprun, sys; sys.exit(ddprun.run([\"--standalone\", \"$script\"]))'"
# shellcheck disable=SC2016
inside 'pip uninstall -q -y ddprun; test -z "$(find venv -iname "*ddprun*" -o -name rendezvousd)"'
echo passed
