#!/usr/bin/env bash
# Prometheus' own tool reads the alert rules, their unit tests, and the metrics of a real server. Skipped without
# promtool (Debian's package prometheus).
set -euo pipefail
if ! command -v promtool >/dev/null; then
  echo "skipped: there is no promtool"
  printf '<testsuites><testsuite name="promtool" tests="1"><testcase name="promtool" status="notrun"><skipped/>%s' \
    '</testcase></testsuite></testsuites>' >"${XML_OUTPUT_FILE:-/dev/null}"
  exit 0
fi
promtool check rules packaging/monitoring/alerts.yaml
promtool test rules packaging/monitoring/alerts_test.yaml
coproc server { exec rendezvous/daemon/rendezvousd --listen=127.0.0.1:0 --http=127.0.0.1:0; }
# shellcheck disable=SC2154 # coproc sets it
trap 'kill "$server_PID"' EXIT
port=
while [[ -z $port ]] && read -r line <&"${server[0]}"; do
  [[ $line == *'HTTP on port '* ]] && port=${line##* }
done
exec 3<>"/dev/tcp/127.0.0.1/$port"
printf 'GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
metrics=$(sed '1,/^\r$/d' <&3)
grep -q '^ddprun_leader 1$' <<<"$metrics"
promtool check metrics <<<"$metrics"
