"""A headless Chromium, driven through chromedriver (W3C WebDriver over HTTP) with the standard library only."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request

ARGUMENTS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps",
    "--disable-extensions", "--window-size=1280,943",  # the window's frame takes 143 lines
]
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Tab": "\ue004", "PageDown": "\ue00f", "End": "\ue010"}
PATIENCE = 60.0  # only a hang takes longer


def missing_programs():
    return [name for name in ("chromedriver", "chromium") if shutil.which(name) is None]


class Browser:
    """One window. close() ends all its processes."""

    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="page-test-")
        self.driver = subprocess.Popen(
            ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, "HOME": self.profile},
        )
        self.session = ""
        for line in self.driver.stdout:
            if "started successfully on port" in line:
                self.base = "http://127.0.0.1:" + line.rsplit("port ", 1)[1].strip().rstrip(".")
                break
        else:
            raise RuntimeError("chromedriver did not start")
        options = {"binary": shutil.which("chromium"), "args": [*ARGUMENTS, "--user-data-dir=" + self.profile]}
        wanted = {"browserName": "chrome", "goog:loggingPrefs": {"browser": "ALL"}, "goog:chromeOptions": options}
        answer = self.call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.session = "/session/" + answer["sessionId"]

    def call(self, method, path, body=None):
        data = None if method in ("GET", "DELETE") else json.dumps(body or {}).encode()
        request = urllib.request.Request(
            self.base + self.session + path, data=data, method=method, headers={"Content-Type": "application/json"}
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        return json.loads(opener.open(request, timeout=PATIENCE).read())["value"]

    def cdp(self, command, **parameters):
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, url):
        self.call("POST", "/url", {"url": url})

    def js(self, code, *arguments):
        return self.call("POST", "/execute/sync", {"script": code, "args": list(arguments)})

    def wait(self, expression):
        """Waits until the JavaScript expression is true; returns its value."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            value = self.js("return " + expression)
            if value:
                return value
            time.sleep(0.02)
        raise AssertionError(f"did not come: {expression}\npage: {self.js('return document.body.innerText')}")

    def click(self, css):
        element = next(iter(self.call("POST", "/element", {"using": "css selector", "value": css}).values()))
        self.call("POST", f"/element/{element}/click")

    def type(self, text):
        """Sends keys to the focused element."""
        keys = [KEYS[text]] if text in KEYS else list(text)
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def text(self, css):
        return self.js("return document.querySelector(arguments[0]).textContent", css)

    def picture(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("GET", "/screenshot")))

    def size(self, width, height):
        mobile = width < 600
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def complaints(self):
        """Messages of the browser's console since the last call."""
        return [entry["message"] for entry in self.call("POST", "/se/log", {"type": "browser"})]

    def close(self):
        try:
            self.call("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait(PATIENCE)
            shutil.rmtree(self.profile, ignore_errors=True)
