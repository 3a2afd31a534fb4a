# What the scripts share. Sourced by bash scripts that have set ROOT to the repository's folder.
#
#   BAZEL               the bazel command with its start-up options, if plain "bazel" is not right
#   DDPRUN_BAZEL_CACHE  a folder for Bazel's disk cache: builds from scratch and other configurations get faster
#   PYTHON              the Python that .venv is made from, if "python3" is not right

: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
export HOME
ME="${0#"$ROOT"/}"
LOGS="$ROOT/bin/.logs"
# What ddprun and rendezvousd are built with.
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

# describe_step SECONDS: how far the step is that has run so long: Bazel's is summed up, another's last line is shown.
# With STEP_EVENTS, the build event file of a run of tests, it says which tests run.
describe_step() {
  local line far python=$ROOT/.venv/bin/python
  line=$(tail -c 4000 "$STEP_LOG" | tr '\r' '\n' | sed -e 's/\x1b\[[0-9;?]*[A-Za-z]//g' -e '/^[[:space:]]*$/d' |
    tail -n 1 | cut -c1-100)
  # What a compiler warns of may come after Bazel's own line.
  if [[ -n ${STEP_EVENTS:-} ]] || grep -qm 1 '^\[[0-9,]* / [0-9,]*\]' "$STEP_LOG"; then
    [[ -x $python ]] || python=python3
    far=$("$python" -B "$ROOT/scripts/progress.py" "$1" "$STEP_LOG" \
      ${STEP_EVENTS:+"$STEP_EVENTS" "${STEP_EVENTS%.events.json}.durations.json"} 2>/dev/null) || true
    line=${far:-$line}
  fi
  printf '%s' "${line:-no output yet}"
}

# step NAME COMMAND...: runs the command with its output in bin/.logs/NAME.log. Quiet; but every 10 seconds a line says
# how long it has run and how far it is. Descriptor 9 (the lock of scripts/setup) is not inherited: a daemon that the
# command leaves behind must not hold it.
step() {
  local name=$1 status=0 ticker
  shift
  mkdir -p "$LOGS"
  STEP_LOG="$LOGS/$name.log"
  : >"$STEP_LOG"
  {
    began=$SECONDS
    # The sleep gets no descriptor of ours: it may outlive the step by some seconds, and a reader of our output would
    # wait for it.
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

# The end of the last step's output.
show_step_log() { tail -n "${1:-20}" "$STEP_LOG" | sed 's/^/    /' >&2; }

# find_missing_packages NAME...: leaves in MISSING those that dpkg does not know as installed.
find_missing_packages() {
  local installed name
  # It complains of those that it has never heard of.
  installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "$@" 2>/dev/null || true)
  installed=" $(sed -n 's/^ii *//p' <<<"$installed" | tr '\n' ' ')"
  MISSING=()
  for name in "$@"; do
    [[ $installed == *" $name "* ]] || MISSING+=("$name")
  done
}

# need_packages NAME...: installs what is missing of these Debian packages, or says in one line what to do.
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
  # A list that could not be renewed matters only if the installation then fails.
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

# run_bazel COMMAND ARGUMENT...: bazel with our cache, without colours or cursor movements.
run_bazel() {
  local command=$1 options=(--color=no --curses=no --show_progress_rate_limit=5)
  shift
  [[ -z ${DDPRUN_BAZEL_CACHE:-} ]] || options+=("--disk_cache=$DDPRUN_BAZEL_CACHE")
  # BAZEL may hold several words.
  (cd "$ROOT" && ${BAZEL:-bazel} "$command" "${options[@]}" "$@")
}

# run_tests NAME ARGUMENT...: bazel test with these flags and targets (all targets if none is named). Shows what failed
# and leaves the numbers of test cases in PASSED, FAILED and SKIPPED. Returns 0 if all passed.
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
  # First what is to be built, on every core, then the tests: they wait most of the time, so there are some more of them
  # at once than cores. A test that can't be built is counted below.
  step "$name-build" run_bazel build --keep_going "$@" || true
  at_once=$(($(nproc) + 4))
  STEP_EVENTS=$events step "$name" run_bazel test --jobs=$at_once --local_cpu_resources=$at_once --keep_going \
    --build_event_json_file="$events" "$@" || status=$?
  read -r PASSED FAILED SKIPPED < <("$ROOT/.venv/bin/python" "$ROOT/scripts/count_tests.py" "$events") || true
  : "${PASSED:=0}" "${FAILED:=0}" "${SKIPPED:=0}"
  "$ROOT/.venv/bin/python" -B "$ROOT/scripts/progress.py" --remember "$events" "$LOGS/$name.durations.json" || true
  # Bazel itself failed (3: a test failed, 4: there was no test) and no test says why.
  if ((status != 0 && status != 3 && status != 4 && FAILED == 0)); then FAILED=1; fi
  if ((FAILED > 0 || status != 0)); then
    show_step_log 150
    say "the whole output of this run: $STEP_LOG"
  fi
  ((FAILED == 0))
}

# The words of the closing line.
totals() {
  local line="$1 passed, $2 failed"
  (($3 == 0)) || line+=", $3 skipped"
  printf '%s\n' "$line"
}
