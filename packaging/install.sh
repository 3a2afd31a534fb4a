#!/usr/bin/env bash
# Installs ddprun: `bazel run //:install -- --prefix=DIR`, or scripts/install --prefix=DIR.
#
#   --prefix=DIR    target folder; ~ and paths relative to the caller's folder are allowed. The installation may be
#                   moved later
#   --uninstall     removes the files installed in DIR
#   DESTDIR         (environment) prepended to the prefix, for package builds
#
# Every file is first written beside its final path and then renamed, so that a running program is not overwritten. The
# files by which CMake and pkg-config find the package are removed first and installed last, so that an interrupted
# installation is not found.
set -euo pipefail
ME=${DDPRUN_INSTALL_NAME:-install}
MANIFEST=share/ddprun/manifest.txt
FINDERS=(lib/pkgconfig/ddprun.pc lib/cmake/ddprun/ddprunConfig.cmake)
# Libraries of the distribution that are linked into the programs: their licences are installed, too.
LINKED=(libgrpc++-dev libprotobuf-dev libabsl-dev libre2-dev libssl-dev libc-ares-dev zlib1g-dev
  libcli11-dev nlohmann-json3-dev libxxhash-dev libsqlite3-dev libboost-dev)

die() {
  printf '%s: %s\n' "$ME" "$*" >&2
  exit 1
}
usage() {
  printf '%s: %s; usage: --prefix=DIR [--uninstall]\n' "$ME" "$*" >&2
  exit 2
}

find_tree() {
  local folder
  for folder in "${RUNFILES_DIR:-.}/ddprun" "${TEST_SRCDIR:-.}/ddprun" "$0.runfiles/ddprun" .; do
    TREE=$folder/packaging/tree
    [[ ! -d $TREE ]] || return 0
  done
  die "the files to install are not here: call scripts/install, or bazel run //:install"
}

# attempt COMMAND...: runs the command, and fails with a one-line message if it does.
attempt() {
  local said
  said=$("$@" 2>&1) ||
    die "can't write to $ROOT (${said##*: }): choose another --prefix, or call this as a user who may write there"
}

# beside NAME: prints the temporary name of an installed file.
beside() { printf '%s/%s/.%s.ddprun-new' "$ROOT" "$(dirname "$1")" "$(basename "$1")"; }

# stage FILE NAME: writes the file under its temporary name.
stage() {
  local mode=644
  [[ $2 != bin/* && $2 != */bin/* && $2 != *.so ]] || mode=755
  STAGED+=("$2")
  attempt mkdir -p "$(dirname "$ROOT/$2")"
  attempt install -m "$mode" "$1" "$(beside "$2")"
}

unstage() {
  local name
  for name in "${STAGED[@]}"; do rm -f "$(beside "$name")"; done
}

# remove NAME: removes the file, and the folders that are then empty.
remove() {
  local folder
  attempt rm -f "$ROOT/$1"
  folder=$(dirname "$1")
  if [[ $1 == *.py ]]; then
    # The compiled copies that Python keeps.
    attempt rm -f "$ROOT/$folder/__pycache__/$(basename "$1" .py)".*.pyc
    rmdir "$ROOT/$folder/__pycache__" 2>/dev/null || true
  fi
  while [[ $folder != . ]] && rmdir "$ROOT/$folder" 2>/dev/null; do folder=$(dirname "$folder"); done
}

# installed: prints the files of the last installation, none if there is no manifest. Only names inside the prefix.
installed() { if [[ -f $ROOT/$MANIFEST ]]; then grep -vE '^/|(^|/)\.\.(/|$)|^$' "$ROOT/$MANIFEST"; fi; }

install_all() {
  local name package old=() list
  find_tree
  STAGED=()
  trap unstage EXIT
  mapfile -t old < <(installed)
  while IFS= read -r -d '' name; do
    stage "$TREE/$name" "$name"
  done < <(cd "$TREE" && find -L . -type f -printf '%P\0' | sort -z)
  for package in "${LINKED[@]}"; do
    if [[ -f /usr/share/doc/$package/copyright ]]; then
      stage "/usr/share/doc/$package/copyright" "share/licenses/ddprun/$package"
    fi
  done
  list=$(printf '%s\n' "${STAGED[@]}" "$MANIFEST" | sort)
  stage /dev/stdin "$MANIFEST" <<<"$list"

  for name in "${FINDERS[@]}"; do attempt rm -f "$ROOT/$name"; done
  while IFS= read -r name; do attempt mv -fT "$(beside "$name")" "$ROOT/$name"; done < <(
    printf '%s\n' "${STAGED[@]}" | grep -vxF -f <(printf '%s\n' "${FINDERS[@]}"))
  for name in "${old[@]}"; do
    grep -qxF -e "$name" <<<"$list" || remove "$name"
  done
  for name in "${FINDERS[@]}"; do attempt mv -fT "$(beside "$name")" "$ROOT/$name"; done
  printf '%s: %s files are in %s\n' "$ME" "$(wc -l <<<"$list")" "$ROOT"
  printf 'programs: %s/bin; CMake: -DCMAKE_PREFIX_PATH="%s"; pkg-config: PKG_CONFIG_PATH="%s/lib/pkgconfig"\n' \
    "$ROOT" "$PREFIX" "$PREFIX"
}

uninstall_all() {
  local name names=()
  mapfile -t names < <(installed)
  ((${#names[@]})) || die "nothing was installed in $ROOT (there is no $MANIFEST)"
  # The finder files are removed first and the manifest last, so that an interrupted run can be repeated.
  for name in "${FINDERS[@]}" "${names[@]}"; do
    [[ $name == "$MANIFEST" ]] || remove "$name"
  done
  remove "$MANIFEST"
  rmdir "$ROOT" 2>/dev/null || true
  printf '%s: removed %s files from %s\n' "$ME" "${#names[@]}" "$ROOT"
}

PREFIX='' ACTION=install_all
while (($#)); do
  case $1 in
    --prefix=*) PREFIX=${1#--prefix=} ;;
    --prefix)
      PREFIX=${2:-}
      shift $(($# > 1))
      ;;
    --uninstall) ACTION=uninstall_all ;;
    *) usage "unknown argument $1" ;;
  esac
  shift
done
[[ -n $PREFIX ]] || usage "--prefix names no folder"
# The shell does not expand the ~ of --prefix=~/x.
if [[ $PREFIX == '~' || $PREFIX == '~/'* ]]; then PREFIX=$HOME${PREFIX#'~'}; fi
[[ $PREFIX == /* ]] || PREFIX=${BUILD_WORKING_DIRECTORY:-$PWD}/$PREFIX
PREFIX=$(realpath -ms -- "$PREFIX")
ROOT=${DESTDIR:-}$PREFIX
"$ACTION"
