"""Plays an editor that launches a program under debugpy, as VS Code's "launch" does.

debug_workers.py SCRIPT LINE LAUNCH; LAUNCH is JSON with arguments of the request. Sets a breakpoint in the script,
continues at each stop, and prints where it was and how the program ended.
"""

import json
import os
import socket
import subprocess
import sys
import threading

PATIENCE = 100  # seconds


class Connection:
    """A session of the Debug Adapter Protocol."""

    def __init__(self, editor, reader, writer, how, arguments):
        self.editor, self.reader, self.writer = editor, reader, writer
        self.requests = 0
        threading.Thread(target=self.read, daemon=True).start()
        self.request("initialize", adapterID="test", pathFormat="path", linesStartAt1=True)
        self.request(how, **arguments)

    def request(self, command, **arguments):
        self.requests += 1
        message = {"seq": self.requests, "type": "request", "command": command, "arguments": arguments}
        body = json.dumps(message).encode()
        self.writer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.writer.flush()

    def read(self):
        while header := self.reader.readline():
            self.reader.readline()
            self.editor.take(self, json.loads(self.reader.read(int(header.split(b":")[1]))))


class Editor:
    def __init__(self, script, line, launch):
        self.script, self.line = script, line
        self.lock = threading.RLock()
        self.ended = threading.Event()
        adapter = subprocess.Popen(
            [sys.executable, "-m", "debugpy.adapter"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        launch = {"type": "python", "console": "internalConsole", **launch}
        self.connections = [Connection(self, adapter.stdout, adapter.stdin, "launch", launch)]
        if not self.ended.wait(PATIENCE):
            print("no end")
        adapter.kill()
        adapter.wait()

    def take(self, connection, message):
        with self.lock:
            name, body = message.get("event") or message.get("command"), message.get("body") or {}
            if message["type"] == "response" and not message["success"]:
                print("refused:", name, message.get("message"), flush=True)
            elif name == "initialized":
                breakpoints = [{"line": self.line}]
                connection.request("setBreakpoints", source={"path": self.script}, breakpoints=breakpoints)
                connection.request("configurationDone")
            elif name == "stopped":
                connection.thread = body["threadId"]
                connection.request("stackTrace", threadId=connection.thread)
            elif name == "stackTrace" and message["type"] == "response":
                frame = body["stackFrames"][0]
                where = os.path.basename(frame["source"]["path"])
                print(f"stopped in {frame['name']} at {where}:{frame['line']}", flush=True)
                connection.request("continue", threadId=connection.thread)
            elif name == "debugpyAttach":
                link = socket.create_connection((body["connect"]["host"], body["connect"]["port"])).makefile("rwb")
                self.connections.append(Connection(self, link, link, "attach", body))
            elif name == "output" and body.get("category") in ("stdout", "stderr"):
                print(body["output"], end="", flush=True)
            elif name == "exited" and connection is self.connections[0]:
                print("exit code", body["exitCode"], flush=True)
                self.ended.set()


if __name__ == "__main__":
    Editor(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]))
    os._exit(0)  # threads still read
