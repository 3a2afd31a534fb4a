"""The C++ rules that are built into Bazel, under the names of rules_cc.

Distribution packages of Bazel ship no rules_cc that fits them, and builds must not fetch one.
"""

cc_binary = native.cc_binary
cc_import = native.cc_import
cc_library = native.cc_library
cc_proto_library = native.cc_proto_library
cc_test = native.cc_test
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
