#!/bin/bash
# Runs a Python test with the interpreter that has torch: $DDPRUN_PYTHON, or .venv/bin/python of the source
# tree. Without one the test is skipped. Usage: with_torch.sh SCRIPT [ARGUMENT...]
set -u
python=${DDPRUN_PYTHON:-}
if [[ -z $python ]]; then
  # The runfiles are links into the source tree.
  folder=$(dirname "$(readlink -f "$1")")
  while [[ $folder != / && ! -x $folder/.venv/bin/python ]]; do folder=$(dirname "$folder"); done
  python=$folder/.venv/bin/python
fi
if [[ ! -x $python ]]; then
  echo "SKIPPED: no Python with torch (run scripts/setup, or set DDPRUN_PYTHON)"
  # So that the test does not count as passed.
  name=$(basename "$1")
  {
    printf '<testsuites><testsuite name="%s" tests="1">' "$name"
    printf '<testcase name="%s"><skipped/></testcase></testsuite></testsuites>' "$name"
  } >"${XML_OUTPUT_FILE:-/dev/null}"
  exit 0
fi
# torch's own server looks up the name of every peer: avoid waiting for an unreachable resolver. Its warnings about the
# tests' intentional errors would fill the log.
export RES_OPTIONS='timeout:1 attempts:1' TORCH_CPP_LOG_LEVEL=ERROR PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
exec timeout --kill-after=10 "${DDPRUN_TEST_LIMIT_S:-240}" "$python" "$@"
