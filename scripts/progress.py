"""Prints the progress of a Bazel run and its estimated remaining time in one line.

usage: progress.py SECONDS LOG [EVENTS DURATIONS]
       progress.py --remember EVENTS DURATIONS

SECONDS is the elapsed time, LOG the output so far (--curses=no) and EVENTS the build event file so far. DURATIONS
contains how long each test took in earlier runs; --remember adds those of EVENTS.
"""

import collections
import json
import os
import re
import statistics
import sys
import time

import count_tests

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NAMED = 3

Finished = collections.namedtuple("Finished", "passed seconds cached")


def read_log(path):
    """Returns Bazel's last status of its actions, (halfway, done, total, text); None if no build is running.

    `halfway` is the value of `done` after half of the time: lines are printed at regular intervals.
    """
    with open(path, encoding="utf-8", errors="replace") as log:
        text = log.read()
    found = re.findall(r"^\[([\d,]+) / ([\d,]+)\] (.*)$", text, re.MULTILINE)
    if not found or re.search(r"^INFO: Build completed|^FAILED: Build", text, re.MULTILINE):
        return None
    number = [int(word.replace(",", "")) for word in (found[len(found) // 2][0], *found[-1][:2])]
    return *number, found[-1][2]


def read_finished(events):
    """Returns {label: Finished}; tests with several shards or runs have the total time of all of them."""
    try:
        results, _ = count_tests.read_events(events)
    except OSError:  # does not exist yet
        return {}
    finished = {}
    for label, parts in results.items():
        parts = parts.values()
        finished[label] = Finished(
            all(part.get("status") in ("PASSED", "FLAKY") for part in parts),
            sum(float(part.get("testAttemptDurationMillis", 0)) for part in parts) / 1000,
            any(part.get("cachedLocally") or part.get("executionInfo", {}).get("cachedRemotely") for part in parts),
        )
    return finished


def read_durations(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def outputs():
    return os.path.realpath(os.path.join(ROOT, ".bazel", "out"))


def read_process(number, file):
    with open(f"/proc/{number}/{file}", "rb") as opened:
        return opened.read()


def find_processes(name_of):
    """Returns {name: seconds} of the processes for whose id `name_of` returns a name, longest running first."""
    ticks = os.sysconf("SC_CLK_TCK")
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    found = {}
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            name = name_of(number)
            if name:
                began = int(read_process(number, "stat").rpartition(b")")[2].split()[19]) / ticks
                found[name] = max(found.get(name, 0.0), now - began)
        except OSError:  # the process has exited, or belongs to another user
            continue
    return dict(sorted(found.items(), key=lambda entry: -entry[1]))


def test_of(number):
    words = read_process(number, "environ").split(b"\0")
    environment = dict(word.partition(b"=")[::2] for word in words)
    if outputs().encode() in environment.get(b"RUNFILES_DIR", b""):
        return environment.get(b"TEST_TARGET", b"").decode()
    return None


def source_of(number):
    words = read_process(number, "cmdline").split(b"\0")
    if b"-c" not in words[:-1] or os.readlink(f"/proc/{number}/cwd") != os.path.dirname(outputs()):
        return None
    return words[words.index(b"-c") + 1].decode()


def say_running(running):
    """Returns "; now NAME (SECONDS s), ...", or "" if nothing runs."""
    if not running:
        return ""
    text = "; now " + ", ".join(f"{name} ({seconds:.0f} s)" for name, seconds in list(running.items())[:NAMED])
    return text + (f" and {len(running) - NAMED} more" if len(running) > NAMED else "")


def say_time(seconds):
    if seconds < 45:
        return "less than a minute"
    minutes = round(seconds / 60)
    return f"about {minutes} min" if minutes < 90 else f"about {seconds / 3600:.1f} h"


def estimate_tests(elapsed, total, finished, running, durations):
    """Returns the estimated remaining seconds of the tests, or None if nothing is known."""
    ran = {label: end.seconds for label, end in finished.items() if not end.cached}
    known = {**durations, **ran}
    if not known:
        return None
    usual = statistics.mean(known.values())
    left = {label: max(0.0, known.get(label, usual) - seconds) for label, seconds in running.items()}
    waiting = [seconds for label, seconds in durations.items() if label not in finished and label not in running]
    # Accounts for removed and for new tests.
    number = max(0, total - len(finished) - len(left))
    waiting = sorted(waiting, reverse=True)[:number] + [usual] * max(0, number - len(waiting))
    worked = sum(ran.values()) + sum(running.values())
    at_once = max(1.0, worked / elapsed if elapsed >= 20 else len(running))
    return max([(sum(left.values()) + sum(waiting)) / at_once, *left.values(), *waiting[:1]])


def describe_tests(elapsed, total, events, durations):
    finished = read_finished(events)
    running = {label: seconds for label, seconds in find_processes(test_of).items() if label not in finished}
    failed = [label for label, end in finished.items() if not end.passed]
    text = f"{len(finished) - len(failed)} of {total} tests passed"
    if failed:
        text += f", {len(failed)} failed ({failed[-1]})"
    left = estimate_tests(elapsed, total, finished, running, read_durations(durations))
    if left is not None:
        text += f", {say_time(left)} left"
    return text + say_running(running)


def describe_build(elapsed, halfway, done, total, said):
    text = f"{done} of {total} actions"
    # The first half may have used cached results.
    if elapsed >= 20 and done > halfway:
        text += f", {say_time(elapsed / 2 * (total - done) / (done - halfway))} left"
    # Bazel names only one action, and rarely.
    running = say_running(find_processes(source_of))
    if not running and total > done:
        running = "; now " + re.sub(r"^\[\w+\] ", "", said.split(";")[0])
    return text + running


def main():
    if sys.argv[1] == "--remember":
        events, path = sys.argv[2:]
        durations = read_durations(path)
        durations.update((label, end.seconds) for label, end in read_finished(events).items() if not end.cached)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(durations, file, indent=0, sort_keys=True)
        return
    elapsed, log = float(sys.argv[1]), sys.argv[2]
    state = read_log(log)
    if state is None:
        return
    halfway, done, total, said = state
    tests = re.search(r"(\d+) / (\d+) tests", said)
    if tests and len(sys.argv) > 4:
        print(describe_tests(elapsed, int(tests.group(2)), *sys.argv[3:5]))
    else:
        print(describe_build(elapsed, halfway, done, total, re.sub(r"^[\d,]+ / [\d,]+ tests[^;]*;? *", "", said)))


if __name__ == "__main__":
    main()
