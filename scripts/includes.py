#!/usr/bin/env python3
"""Checks includes inside folders, where Bazel sees one library: pure files stay pure, and headers form no cycle."""

import fnmatch
import os
import re
import subprocess
import sys

# Files, what they must not include (a regular expression), and why.
RULES = [
    ("rendezvous/http/*", r"grpc|rendezvous/server/driver", "a page needs no gRPC"),
    ("rendezvous/http/http_message.*", r"rendezvous/(server|wire|state)/|boost/", "it is pure"),
    ("rendezvous/http/metrics.*", r"rendezvous/(server|wire|state)/|boost/", "it is pure"),
    ("rendezvous/ha/leader_lease.*", r"rendezvous/(?!ha/leader_lease)|grpc|base/mutex", "it is pure"),
    ("rendezvous/server/client_limits.*", r"grpc|base/mutex|sys/", "it is pure"),
    ("*/core/*", r"thread>|<mutex>|base/mutex\.h|sys/|grpc", "a core is pure"),
    ("launcher/machine/*", r"thread>|<mutex>|base/mutex\.h|sys/|grpc", "a core is pure"),
]


def includes(path):
    with open(path, encoding="utf-8") as file:
        return re.findall(r'^#include [<"]([^">]+)[>"]', file.read(), re.MULTILINE)


def cycle(graph):
    """Returns the nodes of one cycle, or None."""
    done, path = set(), []

    def visit(node):
        if node in path:
            return path[path.index(node):] + [node]
        if node in done:
            return None
        path.append(node)
        for following in graph.get(node, ()):
            found = visit(following)
            if found:
                return found
        done.add(path.pop())
        return None

    return next((found for found in map(visit, list(graph)) if found), None)


def main():
    os.chdir(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    files = subprocess.run(["git", "ls-files", "*.h", "*.cc"], stdout=subprocess.PIPE, text=True, check=True).stdout
    read = {path: includes(path) for path in files.split() if os.path.exists(path)}
    problems = []
    for pattern, forbidden, why in RULES:
        matching = [path for path in read if fnmatch.fnmatch(path, pattern) and not path.startswith("tests/")]
        if not matching:
            problems.append(f"scripts/includes.py has a rule for {pattern}, which matches no file")
        problems += [f"{path} includes {name}: {why}"
                     for path in matching for name in read[path] if re.match(forbidden, name)]
    headers = {path: names for path, names in read.items() if path.endswith(".h")}
    loop = cycle({path: [name for name in names if name in headers] for path, names in headers.items()})
    if loop:
        problems.append("headers include each other: " + " -> ".join(loop))
    print("\n".join(problems))
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
