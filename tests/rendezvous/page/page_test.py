#!/usr/bin/env python3
"""The web page of rendezvousd in headless Chromium: real server, real streams of launchers (crowd), no workers.

usage: page_test.py [--pictures DIR]

Runs in a network namespace of its own, so that nothing leaves this host. With --pictures it also writes the screenshots
of docs/images. Skips itself where Chromium or namespaces are missing.
"""

import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import traceback

HERE = pathlib.Path(__file__).absolute().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True

import browser  # noqa: E402

ROOT = HERE.parents[2]
BUILT = ROOT if (ROOT / "rendezvous/daemon/rendezvousd").exists() else ROOT / ".bazel/bin"
INSIDE = "DDPRUN_PAGE_TEST_INSIDE"
TOKEN = "page-test-token-0123456789"
NODES = 500
SLOTS = 8


def skip(why):
    print(f"skipped: {why}")
    path = os.environ.get("XML_OUTPUT_FILE")
    if path:
        pathlib.Path(path).write_text(
            f'<testsuites><testsuite name="page_test" tests="1"><testcase name="page" status="notrun">'
            f'<skipped message="{why}"/></testcase></testsuite></testsuites>'
        )
    sys.exit(0)


def enter_namespace():
    """Runs this program again in a network namespace with only a loopback interface."""
    for options in (["--net"], ["--net", "--user", "--map-root-user"]):
        if subprocess.run(["unshare", *options, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
            command = ["unshare", *options, sys.executable, "-B", __file__, *sys.argv[1:]]
            os.execvpe(command[0], command, {**os.environ, INSIDE: "1"})
    skip("network namespaces are not allowed here")


def free_port():
    with socket.socket() as probe:  # no other program runs in this namespace
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A rendezvousd that can be restarted on the same ports."""

    def __init__(self, folder, token=""):
        self.folder, self.token = folder, token
        self.port, self.http = free_port(), free_port()
        self.start()

    def start(self):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DDPRUN_")}
        if self.token:
            environment["DDPRUN_TOKEN"] = self.token
        command = [BUILT / "rendezvous/daemon/rendezvousd"]
        command += [f"--listen=127.0.0.1:{self.port}", f"--state-dir={self.folder}"]
        self.process = subprocess.Popen(
            [*command, f"--http=127.0.0.1:{self.http}"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=environment,
        )
        for line in self.process.stdout:
            if "HTTP on port" in line:
                return
        raise AssertionError("rendezvousd did not start")

    def url(self, path="/"):
        return f"http://localhost:{self.http}{path}"

    def stop(self):
        self.process.kill()
        self.process.wait()


class Crowd:
    """A job whose launchers run in one program."""

    def __init__(self, server, job, nodes, slots):
        self.process = subprocess.Popen(
            [BUILT / "tests/rendezvous/page/crowd", f"127.0.0.1:{server.port}", job, str(nodes), str(slots)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )

    def await_round(self):
        line = self.process.stdout.readline()
        assert line.startswith("round "), f"no round: {line!r}"
        return int(line.split()[1])

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def stop(self):
        self.process.kill()
        self.process.wait()


def show_jobs(page, server):
    """A new job appears on the page without a reload."""
    page.open(server.url())
    page.wait("document.getElementById('link').textContent === 'live'")
    page.wait("!document.getElementById('list-empty').hidden")
    job = Crowd(server, "gpt/small <b>", 2, 4)
    job.await_round()
    page.wait("document.querySelector('#jobs tbody a')?.textContent === 'gpt/small <b>'")
    page.wait("document.querySelector('#jobs .badge').textContent === 'running'")
    page.wait("[...document.querySelectorAll('.kind')].some(e => e.textContent === 'round.assigned')")
    page.click("#jobs tbody a")
    page.wait("document.getElementById('job-title').textContent === 'gpt/small <b>'")
    page.wait("document.querySelectorAll('#nodes-space .node').length === 2")
    assert "not reported" in page.text("#nodes-space"), page.text("#nodes-space")
    page.wait("!document.getElementById('time-note').hidden")
    return job


def show_progress(page, job):
    for step in range(1, 41):
        job.say(f"progress {step} {('forward', 'backward', 'optimizer')[step % 3]} {4 / step + 1:.4f}")
        if step % 10 == 0:
            page.wait(f"document.getElementById('tiles').textContent.includes('Step{step}')")
    page.wait("document.querySelectorAll('#nodes-space .rank').length === 8")
    page.wait("document.querySelectorAll('#nodes-space .rank.late').length === 1")
    assert "rank 1 on node0: step 37 (3 behind)" in page.text("#slow li"), page.text("#slow")
    page.wait("document.querySelector('#loss polyline')")
    widths = "[...document.querySelectorAll('#time-bar span')].map(e => parseFloat(e.style.width))"
    page.wait(f"{widths}[0] > 0")  # the part of training
    assert 99.9 < page.js(f"return {widths}.reduce((sum, width) => sum + width)") < 100.1
    label = page.js("return document.getElementById('time-bar').getAttribute('aria-label')")
    assert re.match(r"Training \d+\.\d % \(.*\), Lost .*, Starting .*, Re-forming .*, Waiting for nodes ", label), label
    assert page.js("return document.getElementById('time-note').hidden")


def show_hang(page, job):
    """A reported hang is on the job's page, and in the list of jobs, until it is over."""
    assert page.js("return document.getElementById('job-hang').hidden")
    job.say("hang rank 1 on node0 hangs in <b>load</b>; ranks 0, 2-7 wait | stack of rank 1")
    page.wait("!document.getElementById('job-hang').hidden")
    assert page.text("#job-hang strong").endswith(" rank 1 on node0 hangs in <b>load</b>; ranks 0, 2-7 wait")
    assert page.js("return document.querySelector('#job-hang pre').textContent") == "stack of rank 1"
    page.wait("[...document.querySelectorAll('.kind')].some(e => e.textContent === 'round.hung')")
    page.click("#back")
    page.wait("document.querySelector('#jobs .why')?.textContent.startsWith('rank 1 on node0 hangs')")
    page.click("#jobs tbody a")
    page.wait("!document.getElementById('job-hang').hidden")
    job.say("continue rank 1 continued after 20 s")
    page.wait("document.getElementById('job-hang').hidden")
    while page.text("#slow li") != "rank 1 (node0) is late":
        job.say("straggler rank 1 (node0) is late")  # ignored for a second after the last report
    assert page.js("return document.getElementById('job-hang').hidden")


def show_failure(page, job):
    job.say("fail 1 CUDA error: <script>alert(1)</script>")
    job.await_round()
    page.wait("document.getElementById('causes').textContent.includes('CUDA error: <script>')")
    page.wait("document.getElementById('tiles').textContent.includes('Restarts1 of 3')")
    cause = page.text("#causes li")
    assert "rank 4 on node1: exit code 1" in cause, cause
    assert page.js("return document.scripts.length") == 1
    # A job that has ended shows its cause without its events, too.
    cause = page.js("""
      const events = state.events, causes = document.getElementById('causes');
      state.events = [];
      delete causes.dataset.key;
      paintCauses({ round: 7, verdict: { first_cause: {
        rank: 1, host: 'b', exit_code: 3, message: 'no data', traceback: 'last lines of stderr' } } });
      const text = causes.textContent;
      state.events = events;
      delete causes.dataset.key;
      return text;""")
    assert "Round 7" in cause and "rank 1 on b: exit code 3: no data" in cause, cause
    assert "last lines of stderr" in cause, cause


def timeline(page):
    """The visible events with their times, newest first."""
    return page.js("return [...document.querySelectorAll('#timeline li')]"
                   ".map(e => e.querySelector('time').dateTime + e.textContent)")


def reconnect(page, server, job):
    """The server is killed and restarted; the page and the launchers reconnect."""
    before = timeline(page)
    assert sum("round." in line for line in before) == 6, before
    server.stop()
    page.wait("document.getElementById('link').textContent === 'reconnecting'")
    server.start()
    page.wait("document.getElementById('link').textContent === 'live'")
    page.wait("document.getElementById('job-state').textContent === 'running'")
    page.wait(f"document.querySelectorAll('#timeline li').length >= {len(before)}")
    job.say("finish")
    page.wait("document.getElementById('job-state').textContent === 'finished'")
    page.wait("[...document.querySelectorAll('.kind')].some(e => e.textContent === 'job.finished')")
    after = timeline(page)
    assert [line for line in after if line in before] == before, after
    assert "job.finished" in after[0], after


def use_keys(page, server):
    page.open(server.url())
    page.wait("document.querySelectorAll('#jobs tbody tr').length === 1")
    page.type("/")
    page.wait("document.activeElement.id === 'filter'")
    page.type("nothing")
    page.wait("document.querySelectorAll('#jobs tbody tr').length === 0")
    page.js("const f = document.getElementById('filter'); f.value = ''; f.dispatchEvent(new Event('input'))")
    page.type("Escape")
    page.type("j")
    page.wait("document.activeElement.matches('#jobs a')")
    page.type("Enter")
    page.wait("!document.getElementById('job').hidden")
    page.type("u")
    page.wait("!document.getElementById('list').hidden")
    theme = page.js("return document.documentElement.dataset.theme")
    before = page.js("return getComputedStyle(document.documentElement).backgroundColor")
    page.type("t")
    page.wait(f"document.documentElement.dataset.theme !== '{theme}'")
    page.wait(f"getComputedStyle(document.documentElement).backgroundColor !== '{before}'")
    page.type("t")
    # Everything that can be clicked can be reached by the keyboard.
    assert page.js("return [...document.querySelectorAll('[onclick], div[role=button]')].length") == 0


def follow_system_theme(page, server):
    for scheme, color in (("dark", "rgb(17, 21, 26)"), ("light", "rgb(246, 247, 249)")):
        page.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        page.open(server.url())
        page.js("localStorage.clear()")
        page.open(server.url())
        page.wait(f"getComputedStyle(document.documentElement).backgroundColor === '{color}'")


def crowd_of_nodes(page, server):
    """500 nodes with 8 ranks each: only visible rows exist, and an update is cheap."""
    job = Crowd(server, "large", NODES, SLOTS)
    job.await_round()
    began = time.monotonic()
    page.open(server.url("/#/jobs/large"))
    page.js("location.reload()")
    page.wait(f"document.getElementById('nodes-count').textContent === '{NODES}'")
    loaded = time.monotonic() - began
    paint = page.js("return performance.getEntriesByType('paint').map(p => p.startTime).pop()")
    job.say("progress 7 forward 2.5")
    page.wait("document.querySelector('#nodes-space .rank.p0')")
    rows = page.js("return document.querySelectorAll('#nodes-space .node').length")
    assert rows < 60, rows
    update = page.js("""
      const begin = performance.now();
      for (let i = 0; i < 20; i += 1) paintNodes();
      return (performance.now() - begin) / 20;""")
    page.js("document.getElementById('nodes').scrollTop = 1e6")
    page.wait(f"document.querySelector('#nodes-space .node:last-child span').textContent === '{NODES - 1}'")
    host = page.js("return document.querySelector('#nodes-space .node:last-child span:nth-child(2)').textContent")
    assert host == f"node{NODES - 1}", host
    print(f"{NODES} nodes, {NODES * SLOTS} ranks: first paint {paint:.0f} ms, all there {loaded * 1000:.0f} ms, "
          f"{rows} rows in the page, update of the table {update:.2f} ms")
    return job


def phone(page, server):
    page.size(390, 844)
    for path in ("/", "/#/jobs/large"):
        page.open(server.url(path))
        page.js("location.reload()")
        page.wait("document.getElementById('link').textContent === 'live'")
        page.wait("document.querySelector('#jobs tbody tr, #nodes-space .node')")
        wide = page.js("return document.documentElement.scrollWidth")
        assert wide <= 390, f"{path}: {wide} pixels wide"
    page.size(1280, 800)


def follow(page, server):
    """A follower shows the leader's address instead of an empty list of jobs."""
    page.open(server.url())
    page.wait("document.getElementById('link').textContent === 'live'")
    page.js("""
      window.fetch = async (path) => path === "/api/v1/server" ?
        new Response('{"leads": false, "leader": "node2.example:29400", "not_ready": "does not lead"}') :
        new Response('{"error": "does not lead"}', { status: 503 });""")
    page.wait("document.getElementById('link').textContent === 'follower'")
    assert "node2.example:29400 does" in page.text("#notice"), page.text("#notice")
    link = page.js("return document.querySelector('#notice a').href")
    assert link == f"http://node2.example:{server.http}/", link


def log_in(page, folder):
    """Checks that the page of a server with a token asks for it, and shows nothing before."""
    server = Server(folder, TOKEN)
    page.open(server.url())
    page.wait("!document.getElementById('login').hidden")
    page.wait("document.getElementById('list').hidden")
    page.type("wrong-token-0123456789")
    page.type("Enter")
    page.wait("document.getElementById('notice').textContent === 'invalid token'")
    page.js("document.getElementById('token').value = ''; document.getElementById('token').focus()")
    page.type(TOKEN)
    page.type("Enter")
    page.wait("document.getElementById('link').textContent === 'live'")
    page.wait("document.getElementById('login').hidden && !document.getElementById('list').hidden")
    assert page.js("return document.cookie") == ""  # scripts do not see it
    server.stop()


def take_pictures(page, server, folder):
    job = Crowd(server, "llama-8b-pretrain", 4, 8)
    job.await_round()
    page.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    page.size(1280, 880)
    page.open(server.url("/#/jobs/llama-8b-pretrain"))
    page.js("localStorage.clear(); location.reload()")
    for step in range(2, 242, 8):
        phase = ("forward", "backward", "optimizer")[step // 8 % 3]
        job.say(f"progress {step} {phase} {6 / step ** 0.4 + step % 3 / 50:.4f}")
        page.wait(f"document.getElementById('tiles').textContent.includes('Step{step}')")
    job.say("fail 2 RuntimeError: CUDA error: an illegal memory access was encountered")
    job.await_round()
    job.say("progress 226 forward 0.69")
    page.wait("document.getElementById('tiles').textContent.includes('Step226')")
    job.say("progress 240 forward 0.67")
    page.wait("document.getElementById('tiles').textContent.includes('Step240')")
    page.wait("document.querySelectorAll('#nodes-space .rank').length === 32")
    page.wait("document.getElementById('causes').textContent.includes('illegal')")
    page.picture(f"{folder}/page_dark.png")
    page.type("t")
    page.picture(f"{folder}/page_light.png")
    page.size(390, 844)
    page.open(server.url("/"))
    page.wait("document.querySelectorAll('#jobs tbody tr').length > 1")
    page.picture(f"{folder}/page_phone.png")
    job.stop()


def run(folder):
    pictures = sys.argv[2] if sys.argv[1:2] == ["--pictures"] else ""
    server = Server(os.path.join(folder, "state"))
    page = browser.Browser()
    try:
        page.size(1280, 800)
        job = show_jobs(page, server)
        show_progress(page, job)
        show_hang(page, job)
        show_failure(page, job)
        reconnect(page, server, job)
        expected = re.compile(r"/api/v1/\S+ - Failed to load resource|ERR_(CONNECTION|INCOMPLETE)|^chrome://")
        complaints = [line for line in page.complaints() if not expected.search(line)]
        assert not complaints, complaints
        use_keys(page, server)
        follow_system_theme(page, server)
        large = crowd_of_nodes(page, server)
        phone(page, server)
        complaints = page.complaints()
        assert not complaints, complaints
        follow(page, server)
        log_in(page, os.path.join(folder, "other"))
        if pictures:
            take_pictures(page, server, pictures)
        job.stop()
        large.stop()
    finally:
        page.close()
        server.stop()


def main():
    if INSIDE not in os.environ:
        missing = browser.missing_programs()
        if missing:
            skip("there is no " + " and no ".join(missing))
        enter_namespace()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="page-test-", dir=os.environ.get("TEST_TMPDIR")) as folder:
        try:
            run(folder)
        except Exception:  # pylint: disable=broad-except
            traceback.print_exc()
            sys.exit(1)
    print(f"passed in {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
