# Functions shared by the scripts. Sourced by bash scripts that have set ROOT to the repository's folder.
#
#   BAZEL               the bazel command with its startup options, if plain "bazel" is not suitable
#   DDPRUN_BAZEL_CACHE  a folder for Bazel's disk cache, which speeds up clean builds and other configurations
#   PYTHON              the Python from which .venv is created, if "python3" is not suitable

: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
export HOME
ME="${0#"$ROOT"/}"
LOGS="$ROOT/bin/.logs"
# Packages needed to build ddprun and rendezvousd.
# shellcheck disable=SC2034
LAUNCHER_PACKAGES=(
  ca-certificates g++ pkg-config
  bazel-bootstrap bazel-rules-java bazel-rules-proto bazel-platforms bazel-skylib
  libgrpc++-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libabsl-dev
  libcli11-dev nlohmann-json3-dev libsqlite3-dev libboost-dev
  zlib1g-dev libzstd-dev # OpenSSL's archive needs both on Debian 13, and its package does not say so
)

say() { printf '%s: %s\n' "$ME" "$*" >&2; }
die() {
  say "$*"
  exit 1
}

# describe_step SECONDS: prints the progress of the step that has run for SECONDS: a summary for Bazel, else the last
# line of output. With STEP_EVENTS, the build event file of a test run, it names the running tests.
describe_step() {
  local line far python=$ROOT/.venv/bin/python
  line=$(tail -c 4000 "$STEP_LOG" | tr '\r' '\n' | sed -e 's/\x1b\[[0-9;?]*[A-Za-z]//g' -e '/^[[:space:]]*$/d' |
    tail -n 1 | cut -c1-100)
  # Compiler warnings may follow Bazel's own line.
  if [[ -n ${STEP_EVENTS:-} ]] || grep -qm 1 '^\[[0-9,]* / [0-9,]*\]' "$STEP_LOG"; then
    [[ -x $python ]] || python=python3
    far=$("$python" -B "$ROOT/scripts/progress.py" "$1" "$STEP_LOG" \
      ${STEP_EVENTS:+"$STEP_EVENTS" "${STEP_EVENTS%.events.json}.durations.json"} 2>/dev/null) || true
    line=${far:-$line}
  fi
  printf '%s' "${line:-no output yet}"
}

# step NAME COMMAND...: runs the command quietly with its output in bin/.logs/NAME.log, printing the time and progress
# every 10 seconds. Descriptor 9 (the lock of scripts/setup) is not inherited: a daemon that the command leaves behind
# must not hold it.
step() {
  local name=$1 status=0 ticker
  shift
  mkdir -p "$LOGS"
  STEP_LOG="$LOGS/$name.log"
  : >"$STEP_LOG"
  {
    began=$SECONDS
    # The sleep inherits no descriptor: it may outlive the step by some seconds, and a reader of the output would wait
    # for it.
    while sleep 10 </dev/null >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
      say "$name: $((SECONDS - began)) s: $(describe_step $((SECONDS - began)))"
    done
  } 9>&- &
  ticker=$!
  "$@" >"$STEP_LOG" 2>&1 </dev/null 9>&- || status=$?
  kill "$ticker" 2>/dev/null || true
  wait "$ticker" 2>/dev/null || true
  return $status
}

# Prints the end of the last step's output.
show_step_log() { tail -n "${1:-20}" "$STEP_LOG" | sed 's/^/    /' >&2; }

# find_missing_packages NAME...: sets MISSING to the packages that are not installed according to dpkg.
find_missing_packages() {
  local installed name
  # dpkg-query reports unknown packages on stderr.
  installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "$@" 2>/dev/null || true)
  installed=" $(sed -n 's/^ii *//p' <<<"$installed" | tr '\n' ' ')"
  MISSING=()
  for name in "$@"; do
    [[ $installed == *" $name "* ]] || MISSING+=("$name")
  done
}

# need_packages NAME...: installs the missing ones of these Debian packages, or says in one line what to do.
need_packages() {
  local as_root=()
  command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
    die "there is no apt-get here: use Debian 12 or newer, or Ubuntu 24.04 or newer (a container will do)"
  find_missing_packages "$@"
  ((${#MISSING[@]})) || return 0
  if [[ $(id -u) != 0 ]]; then
    if command -v sudo >/dev/null && { [[ -t 0 ]] && sudo true || sudo -n true 2>/dev/null; }; then
      as_root=(sudo)
    else
      die "packages are missing and this user can't install them; run as root: apt-get install -y ${MISSING[*]}"
    fi
  fi
  say "installing packages: ${MISSING[*]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300
    -o Acquire::Retries=3)
  # A failed update matters only if the installation then fails.
  step apt-update "${apt[@]}" update || true
  if ! step apt-install "${apt[@]}" install --no-install-recommends "${MISSING[@]}"; then
    if grep -qE 'Temporary failure resolving|Could not resolve|Unable to connect|Failed to fetch' "$STEP_LOG"; then
      die "apt-get could not fetch packages: check network, proxy and package sources, then call $ME again"
    fi
    show_step_log
    if grep -qE 'Unable to locate package|has no installation candidate' "$STEP_LOG"; then
      die "apt-get does not know a package: check network and package sources; Debian 12 and Ubuntu 24.04 have them all"
    fi
    die "apt-get could not install the packages: see the lines above (whole output: $STEP_LOG)"
  fi
}

# run_bazel COMMAND ARGUMENT...: runs bazel with the cache, without colors or cursor movements.
run_bazel() {
  local command=$1 options=(--color=no --curses=no --show_progress_rate_limit=5)
  shift
  [[ -z ${DDPRUN_BAZEL_CACHE:-} ]] || options+=("--disk_cache=$DDPRUN_BAZEL_CACHE")
  # BAZEL may contain several words.
  (cd "$ROOT" && ${BAZEL:-bazel} "$command" "${options[@]}" "$@")
}

# run_tests NAME ARGUMENT...: bazel test with these flags and targets (default: all targets). Prints failures and sets
# PASSED, FAILED and SKIPPED to the numbers of test cases. Returns 0 if all passed.
run_tests() {
  local name=$1 events status=0 targets=() argument at_once
  shift
  for argument in "$@"; do
    [[ $argument == -[!/]* || $argument == -- ]] || targets+=("$argument")
  done
  ((${#targets[@]})) || set -- "$@" //...
  mkdir -p "$LOGS"
  events="$LOGS/$name.events.json"
  rm -f "$events"
  # Build on every core first, then test with some more jobs than cores, because tests mostly wait. A test that does not
  # build is counted below.
  step "$name-build" run_bazel build --keep_going "$@" || true
  at_once=$(($(nproc) + 4))
  STEP_EVENTS=$events step "$name" run_bazel test --jobs=$at_once --local_cpu_resources=$at_once --keep_going \
    --build_event_json_file="$events" "$@" || status=$?
  read -r PASSED FAILED SKIPPED < <("$ROOT/.venv/bin/python" "$ROOT/scripts/count_tests.py" "$events" \
    2> >(tee -a "${DDPRUN_FAILURES_FILE:-/dev/null}" >&2)) || true
  : "${PASSED:=0}" "${FAILED:=0}" "${SKIPPED:=0}"
  "$ROOT/.venv/bin/python" -B "$ROOT/scripts/progress.py" --remember "$events" "$LOGS/$name.durations.json" || true
  # Bazel itself failed (3: a test failed, 4: there was no test), and no test reports it.
  if ((status != 0 && status != 3 && status != 4 && FAILED == 0)); then FAILED=1; fi
  if ((FAILED > 0 || status != 0)); then
    show_step_log 150
    say "the whole output of this run: $STEP_LOG"
  fi
  ((FAILED == 0))
}

# Prints the final line.
totals() {
  local line="$1 passed, $2 failed"
  (($3 == 0)) || line+=", $3 skipped"
  printf '%s\n' "$line"
}
