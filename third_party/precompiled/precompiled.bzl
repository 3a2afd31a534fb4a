"""The headers that most files read, compiled once.

Most of the time of compiling a file is spent on reading the headers of libraries: half a minute for LibTorch's, 3 s for
gRPC's, 1 to 2 s for those of Abseil, GoogleTest and the standard library. BUILD files load cc_library, cc_binary and
cc_test from here: the same rules, which add the precompiled header that fits `deps`.

Tests' own code is compiled without optimisation, which halves the time once more, and hardly a test runs longer for it:
`optimized = True` is for those that do. Code under tests/ that sees LibTorch is compiled with -O1, which takes a third
less time than -O2: what runs long in it is LibTorch.

Files still include what they use: the compiler takes a precompiled header only where its options are the same, and
otherwise reads the headers themselves. `--define=precompiled=off` builds without them.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

_PACKAGE = "third_party/precompiled"
_OFF = "//" + _PACKAGE + ":off"
_COMPILE = "c++-compile"

# Compiler options for the tests' own code.
NOT_OPTIMIZED = ["-O0", "-U_FORTIFY_SOURCE"]
LITTLE_OPTIMIZED = ["-O1"]

def _precompiled_header_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    headers = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps]).compilation_context

    # Not in the source tree, where the compiler would find the header before the precompiled one.
    header = ctx.actions.declare_file("headers/" + ctx.file.header.basename)
    precompiled = ctx.actions.declare_file("headers/" + ctx.file.header.basename + ".gch")
    ctx.actions.symlink(output = header, target_file = ctx.file.header)
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = header.path,
        output_file = precompiled.path,
        use_pic = True,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts,
        include_directories = headers.includes,
        quote_include_directories = headers.quote_includes,
        system_include_directories = headers.system_includes,
        preprocessor_defines = headers.defines,
    )
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(
            feature_configuration = features,
            action_name = _COMPILE,
        ),
        arguments = cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = _COMPILE,
            variables = variables,
        ),
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = _COMPILE,
            variables = variables,
        ),
        inputs = depset([header], transitive = [headers.headers, toolchain.all_files]),
        outputs = [precompiled],
        mnemonic = "CppPrecompile",
        progress_message = "Compiling " + ctx.file.header.short_path,
    )
    return [CcInfo(compilation_context = cc_common.create_compilation_context(
        # The compiler refuses the header where one of these is missing.
        defines = headers.defines,
        headers = depset([header, precompiled]),
    ))]

_precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        "header": attr.label(allow_single_file = True, mandatory = True),
        "deps": attr.label_list(providers = [CcInfo]),
        "copts": attr.string_list(),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

def precompiled_header(name, **kwargs):
    _precompiled_header(name = name, header = name + ".hpp", **kwargs)

def _with_precompiled(rule, deps = [], copts = [], optimized = True, **kwargs):
    header = None
    if [dep for dep in deps if dep.startswith("@libtorch")]:
        header = "libtorch"
        if native.package_name().startswith("tests/"):
            header = "libtorch_test"
            copts = copts + LITTLE_OPTIMIZED
    elif copts:
        pass  # the options differ from the header's
    elif not optimized:
        header = "test"
        copts = NOT_OPTIMIZED
    elif "@system//:grpc" in deps:
        header = "grpc"
    elif "@system//:absl" in deps:
        header = "base"
    if header:
        file = "%s/headers/%s.hpp" % (_PACKAGE, header)
        deps = deps + select({_OFF: [], "//conditions:default": ["//%s:%s" % (_PACKAGE, header)]})
        copts = copts + select({_OFF: [], "//conditions:default": ["-include", file]})
    rule(deps = deps, copts = copts, **kwargs)

def cc_library(**kwargs):
    _with_precompiled(native.cc_library, **kwargs)

def cc_binary(**kwargs):
    _with_precompiled(native.cc_binary, **kwargs)

def cc_test(optimized = False, **kwargs):
    _with_precompiled(native.cc_test, optimized = optimized, **kwargs)
