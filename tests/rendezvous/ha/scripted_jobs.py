"""Jobs of small shell workers with a scripted outcome, and the invariants that each must satisfy whatever servers do.

Every worker writes to its job's journal when it starts, ends, fails or is stopped, with launcher, round, rank, world
size and restart count. When it starts, it checks if a worker of another round of its job is still alive.
"""

import collections
import dataclasses
import os
import signal
import subprocess
import time

EXIT_CODE = 7  # exit code of a failing worker
LIMIT = 180.0  # seconds in which a job must end; generous even for a loaded machine

# `look PID` sets $begun to the process's start time, and fails if it has exited; it needs no clock and no program.
WORKER = r"""
look() {
  { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
  set -- $line
  begun=${22}
  case $3 in Z | X) return 1 ;; esac
}
say() { echo "$1 $LAUNCHER $DDPRUN_ROUND $RANK $WORLD_SIZE $TORCHELASTIC_RESTART_COUNT $$ $mine" >>"$JOURNAL"; }
pause() { sleep "$1" & wait $!; }
look $$
mine=$begun
trap 'trap "" TERM; say stopped; exit 143' TERM
say start
while read -r what _ round _ _ _ pid since; do
  if [ $what = start ] && [ $round != $DDPRUN_ROUND ] && look $pid && [ $begun = $since ]; then say overlap; fi
done <"$JOURNAL"
while [ -n "$GO" ] && [ ! -e "$GO" ]; do pause 0.1; done
if [ $RANK = "$FAILING_RANK" ] && [ $TORCHELASTIC_RESTART_COUNT -lt $FAILURES ]; then
  pause $FAILING_LIFE
  trap '' TERM
  say fail
  exit %d
fi
pause $LIFE
trap '' TERM
say end
""" % EXIT_CODE

INVARIANTS = {
    "ends": "every job ended in time, all its launchers with the code that its script demands",
    "once": "no rank of a round was started twice, and no older round after a newer one",
    "whole": "every rank of each completed round was there and ended, with one WORLD_SIZE in each round",
    "alone": "no two rounds of a job had live workers at the same time",
    "charges": "exactly the scripted failures were charged as restarts",
}


@dataclasses.dataclass
class Script:
    """The script of a job of two nodes."""

    kind: str
    life: float = 0.5  # seconds that a worker runs if it does not fail
    failing_rank: str = ""
    failing_life: float = 0.0
    failures: int = 0  # number of attempts in which the failing rank fails
    max_restarts: int = 3
    nodes: str = "2"
    kill_after: float = None  # seconds; kills a launcher, and only then lets the workers end
    spare: bool = False  # start a third launcher at the beginning, instead of one to replace the killed one

    @property
    def exit_code(self):
        return EXIT_CODE if self.failures > self.max_restarts else 0

    @property
    def charges(self):
        return min(self.failures, self.max_restarts)


def draw_script(rng):
    """Draws one of the kinds, mostly with short-lived workers."""
    life = rng.uniform(0.1, 2) if rng.random() < 0.8 else rng.uniform(4, 12)
    kind = rng.choices(["succeeds", "restarts", "fails", "replaced", "spare"], [40, 20, 15, 15, 10])[0]
    failing = {"failing_rank": str(rng.randrange(2)), "failing_life": rng.uniform(0, 3)}
    if kind == "restarts":
        return Script(kind, life, failures=rng.choice([1, 1, 2]), **failing)
    if kind == "fails":
        restarts = rng.randrange(2)
        return Script(kind, life, failures=restarts + 1, max_restarts=restarts, **failing)
    if kind == "replaced":
        return Script(kind, rng.uniform(0.1, 1), nodes=rng.choice(["2", "1:2"]), kill_after=rng.uniform(0, 2))
    if kind == "spare":
        return Script(kind, rng.uniform(0.1, 1), kill_after=rng.uniform(0, 2), spare=True)
    return Script(kind, life)


Line = collections.namedtuple("Line", "what launcher round rank world restarts")


class Job:
    """One job: its launchers, its journal, and its violations. Used by one thread."""

    def __init__(self, name, script, cluster, ddprun, rng):
        self.name = name
        self.script = script
        self.cluster = cluster
        self.ddprun = ddprun
        self.rng = rng
        self.journal = os.path.join(cluster.folder, f"{name}.journal")
        self.go = os.path.join(cluster.folder, f"{name}.go")
        self.launchers = []
        self.killed = None
        self.wrong = []  # (invariant, text)
        self.extra_rounds = 0  # more than one for each attempt plus those that losing a launcher may cost

    def run(self):
        """Runs the job to its end and checks it."""
        give_up = time.monotonic() + LIMIT
        open(self.journal, "w").close()
        for _ in range(3 if self.script.spare else 2):
            self.start_launcher()
        if self.script.kill_after is not None:
            self.lose_a_launcher(give_up)
        for number, launcher in enumerate(self.launchers):
            try:
                code = launcher.wait(max(0.0, give_up - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.blame("ends", f"launcher {number} still ran after {LIMIT:.0f} s")
                launcher.kill()
                launcher.wait()
                continue
            demanded = -signal.SIGKILL if launcher is self.killed else self.script.exit_code
            if code != demanded:
                self.blame("ends", f"launcher {number} ended with {code}, not {demanded}")
        self.check_journal()
        if not self.wrong:
            self.remove_files()

    def start_launcher(self):
        script = self.script
        number = len(self.launchers)
        argv = [self.ddprun, f"--nnodes={script.nodes}", "--nproc-per-node=1", f"--max-restarts={script.max_restarts}",
                f"--rdzv-endpoint={self.cluster.endpoints()}", f"--rdzv-id={self.name}",
                "--rdzv-conf=last_call_timeout=1,heartbeat_timeout=3", "--no-python", "sh", "-c", WORKER]
        self.launchers.append(self.cluster.start(
            argv, f"{self.name}.launcher{number}", LAUNCHER=str(number), JOURNAL=self.journal,
            LIFE=f"{script.life:.2f}", FAILING_RANK=script.failing_rank, FAILING_LIFE=f"{script.failing_life:.2f}",
            FAILURES=str(script.failures), GO=self.go if script.kill_after is not None else ""))

    def lose_a_launcher(self, give_up):
        """Kills one of the launchers, and lets the workers end once the remaining ones share a round."""
        time.sleep(self.script.kill_after)
        self.killed = self.rng.choice(self.launchers)
        self.killed.kill()
        if not self.script.spare:
            self.start_launcher()
        left = {number for number, launcher in enumerate(self.launchers) if launcher is not self.killed}
        while time.monotonic() < give_up:
            starts = [line for line in self.lines() if line.what == "start"]
            if {line.launcher for line in starts if line.round == starts[-1].round} == left:
                break
            time.sleep(0.05)
        open(self.go, "w").close()

    def lines(self):
        with open(self.journal, encoding="utf-8") as file:
            words = [line.split() for line in file]
        return [Line(what, *map(int, numbers[:5])) for what, *numbers in words]

    def check_journal(self):
        lines = self.lines()
        starts = [line for line in lines if line.what == "start"]
        rounds = collections.defaultdict(list)
        for line in starts:
            if rounds and line.round < max(rounds):
                self.blame("once", f"round {line.round} started a worker after round {max(rounds)} did")
            if any(other.rank == line.rank for other in rounds[line.round]):
                self.blame("once", f"rank {line.rank} of round {line.round} was started twice")
            rounds[line.round].append(line)
        for line in lines:
            if line.what == "overlap":
                self.blame("alone", f"rank {line.rank} of round {line.round} started beside a worker of another round")
        for number, those in rounds.items():
            if len({(line.world, line.restarts) for line in those}) > 1:
                self.blame("whole", f"round {number} has several world sizes or restart counts")
        self.check_end(lines, rounds)

    def check_end(self, lines, rounds):
        if not rounds:
            self.blame("whole", "no worker started")
            return
        last = max(rounds)
        if self.script.exit_code == 0:
            ranks = list(range(rounds[last][0].world))
            for what in ("start", "end"):
                there = sorted(line.rank for line in lines if line.what == what and line.round == last)
                if there != ranks:
                    self.blame("whole", f"'{what}' in the last round, {last}: ranks {there}, not {ranks}")
        restarts = max(line.restarts for those in rounds.values() for line in those)
        if restarts != self.script.charges:
            self.blame("charges", f"{restarts} restarts were charged, not {self.script.charges}")
        if self.killed is None:
            self.extra_rounds = len(rounds) - 1 - restarts
        failed = {line.restarts for line in lines if line.what == "fail"}
        if not failed.issuperset(range(self.script.failures)):
            self.blame("charges", f"a worker failed only in attempts {sorted(failed)} of {self.script.failures}")

    def blame(self, invariant, text):
        self.wrong.append((invariant, f"{self.name} ({self.script.kind}): {text}"))

    def remove_files(self):
        for path in [self.journal, self.go, *(launcher.log for launcher in self.launchers)]:
            if os.path.exists(path):
                os.remove(path)
