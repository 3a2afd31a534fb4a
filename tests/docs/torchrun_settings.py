"""Prints what torchrun can be given, read from its sources without running them: a line each for its flags, the
variables that it reads, and the keys of --rdzv-conf of its rendezvous backends, except etcd's.

usage: torchrun_settings.py SITE_PACKAGES
"""

import ast
import pathlib
import sys

ROOT = pathlib.Path(sys.argv[1], "torch/distributed")
READ = ("environ.get", "os.environ.get", "os.getenv", "get_env_variable_or_raise")
KEYS = ("params.get", "params.get_as_int", "params.get_as_bool", "params.config.get")


def constants(tree):
    """Yields (name, value) of assignments of a text, or of another name that has one."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        if isinstance(node.value, ast.Name):
            yield node.targets[0].id, node.value.id
        elif isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.targets[0].id, node.value.value


def text(node):
    """Returns the text of an argument, or None."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    value = values.get(ast.unparse(node))
    return values.get(value, value)


flags, variables, keys = set(), set(), set()
sources = [ROOT / "run.py", *(ROOT / "launcher").rglob("*.py"), *(ROOT / "elastic").rglob("*.py")]
trees = {source: ast.parse(source.read_text(encoding="utf-8")) for source in sources}
values = {name: value for tree in trees.values() for name, value in constants(tree)}
for source, tree in trees.items():
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "os.environ":
            called, arguments = READ[0], [node.slice]
        elif isinstance(node, ast.Call):
            called, arguments = ast.unparse(node.func), node.args
        else:
            continue
        words = [word for word in map(text, arguments) if word]
        if called.endswith(".add_argument") and source.name == "run.py":
            flags.update(word[2:].replace("_", "-") for word in words if word.startswith("--"))
        elif called in READ:
            variables.update(words[:1])
        elif called in KEYS and not source.name.startswith("etcd"):
            keys.update(words[:1])
        elif called == "_get_timeout":
            keys.update(f"{word}_timeout" for word in words)
for name, found in ("flags", flags), ("variables", variables), ("keys", keys):
    print(name, *sorted(found))
