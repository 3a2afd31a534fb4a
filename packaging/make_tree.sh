#!/usr/bin/env bash
# make_tree.sh TREE LIST: fills the folder TREE according to LIST. Called by install_tree.bzl.
#
# LIST holds one word per line:
#   set NAME VALUE          @NAME@ in templates
#   version FILE            the header with kVersion
#   torch_version FILE      LibTorch's header with TORCH_VERSION
#   header FILE NAME        a header of ours and its include path
#   public NAME FOLDER      copies this header and all of our headers that it includes to TREE/FOLDER
#   file FILE PLACE         copies a file or folder to TREE/PLACE
#   template FILE PLACE     copies a file to TREE/PLACE, with @NAME@ replaced
set -euo pipefail
tree=$1
declare -A values headers

put() {
  mkdir -p "$(dirname "$tree/$2")"
  cp -RL "$1" "$tree/$2"
  chmod -R u+w "$tree/$2"
}

put_headers() {
  local folder=$2 name
  local queue=("$1")
  local -A seen=(["$1"]=1)
  while ((${#queue[@]})); do
    name=${queue[0]}
    queue=("${queue[@]:1}")
    put "${headers[$name]}" "$folder/$name"
    while read -r name; do
      # Quotes are also used for Abseil, whose headers are not installed.
      if [[ -n ${headers[$name]:-} && -z ${seen[$name]:-} ]]; then
        seen[$name]=1
        queue+=("$name")
      fi
    done < <(sed -nE 's/^ *# *include *"([^"]+)".*/\1/p' "${headers[$name]}")
  done
}

put_template() {
  local text name
  text=$(<"$1")
  for name in "${!values[@]}"; do text=${text//"@$name@"/"${values[$name]}"}; done
  if [[ $text =~ @[A-Z_]+@ ]]; then
    echo "$1: nobody sets ${BASH_REMATCH[0]}" >&2
    exit 1
  fi
  mkdir -p "$(dirname "$tree/$2")"
  printf '%s\n' "$text" >"$tree/$2"
}

values[ABSL_VERSION]=$(sed -nE 's/^#define ABSL_LTS_RELEASE_VERSION +([0-9]+).*/\1/p' /usr/include/absl/base/config.h)
mapfile -t words <"$2"
for ((i = 0; i < ${#words[@]};)); do
  a=${words[i + 1]} b=${words[i + 2]:-}
  case ${words[i]} in
    set) values[$a]=$b ;;
    version) values[VERSION]=$(sed -nE 's/.*kVersion\[\] = "(.*)".*/\1/p' "$a") ;;
    torch_version) values[TORCH_VERSION]=$(sed -nE 's/^ *"([0-9.]+)".*/\1/p' "$a") ;;
    header) headers[$b]=$a ;;
    public) put_headers "$a" "$b" ;;
    file) put "$a" "$b" ;;
    template) put_template "$a" "$b" ;;
  esac
  case ${words[i]} in
    *version) i=$((i + 2)) ;;
    *) i=$((i + 3)) ;;
  esac
done
