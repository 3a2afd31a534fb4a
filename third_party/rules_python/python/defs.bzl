"""The Python rules that are built into Bazel, under the names of rules_python.

Bazel 7's own packages load them, although nothing here is built with Python, and would fetch rules_python.
"""

py_binary = native.py_binary
py_library = native.py_library
py_test = native.py_test
