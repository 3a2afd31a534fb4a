"""One library and one unit test program per folder.

The sources of a folder are found by their names: *_test.cc are tests, *_main.cc are programs, all others belong to the
folder's library. A new file needs no change of a BUILD file, unless it includes a folder that no other file of its
folder includes.

Abseil is a dependency of everything here, GoogleTest of every test.
"""

load("//third_party/precompiled:precompiled.bzl", "cc_binary", "cc_library", "cc_test")

_APART = ["*_test.cc", "*_main.cc"]

def _files(stems, suffix):
    return native.glob([stem + suffix for stem in stems])

def folder_library(
        name,
        deps = [],
        only = None,
        exclude = [],
        srcs = [],
        visibility = ["//visibility:public"],
        **kwargs):
    """A library of the folder's sources, or of some of them.

    Args:
      only: names without .h and .cc: the library has these files only.
      exclude: names without .h and .cc that another target of this folder has.
      srcs: generated sources, which are added.
    """
    apart = _APART + [stem + ".cc" for stem in exclude] + [stem + ".h" for stem in exclude]
    cc_library(
        name = name,
        srcs = (native.glob(["*.cc"], exclude = apart) if only == None else _files(only, ".cc")) + srcs,
        hdrs = native.glob(["*.h"], exclude = apart) if only == None else _files(only, ".h"),
        visibility = visibility,
        deps = deps + ["@system//:absl"],
        **kwargs
    )

def program(name, deps = [], main = None, visibility = ["//visibility:public"], **kwargs):
    """A program with its main function in NAME.cc or NAME_main.cc.

    Args:
      main: with it, NAME_command is the same program as a library, whose main function has this name.
    """
    srcs = native.glob([name + ".cc", name + "_main.cc"])
    cc_binary(
        name = name,
        srcs = srcs,
        visibility = visibility,
        deps = deps + ["@system//:absl"],
        **kwargs
    )
    if main:
        cc_library(
            name = name + "_command",
            srcs = srcs,
            local_defines = ["main=" + main],
            visibility = visibility,
            deps = deps + ["@system//:absl"],
        )

def unit_tests(name = "unit_tests", deps = [], only = None, exclude = [], **kwargs):
    """One program of the folder's *_test.cc.

    Args:
      only: names of tests: the program has these only.
      exclude: names of tests that another target of this folder has.
    """
    cc_test(
        name = name,
        srcs = _files(only, ".cc") if only else native.glob(
            ["*_test.cc"],
            exclude = [test + ".cc" for test in exclude],
        ),
        deps = deps + ["@system//:absl", "@system//:gtest", "@system//:gtest_main"],
        **kwargs
    )

def own_tests(names, **kwargs):
    """A program for each of the tests: they start processes, change their own, or take long."""
    for name in names:
        unit_tests(name = name, only = [name], **kwargs)
