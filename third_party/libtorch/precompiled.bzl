"""LibTorch's largest headers, compiled once.

A file that includes <torch/nn/module.h> takes half a minute to compile, nearly all of it for reading headers; with a
precompiled header it takes ten seconds. BUILD files with targets that depend on LibTorch load cc_library, cc_binary and
cc_test from here: the same rules, which add the precompiled header where `deps` names @libtorch.

Files still include what they use: the compiler takes a precompiled header only where its options are the same, and
otherwise reads the headers themselves. `--define=precompiled=off` builds without it.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

_HEADER = "third_party/libtorch/precompiled/libtorch.hpp"
_TARGET = "//third_party/libtorch:precompiled"
_OFF = "//third_party/libtorch:precompiled_off"
_COMPILE = "c++-compile"

def _precompiled_header_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    headers = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps]).compilation_context

    # Not in the source tree: there, the compiler would find the header before it finds what was made of it.
    header = ctx.actions.declare_file("precompiled/libtorch.hpp")
    precompiled = ctx.actions.declare_file("precompiled/libtorch.hpp.gch")
    ctx.actions.symlink(output = header, target_file = ctx.file.header)
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = header.path,
        output_file = precompiled.path,
        use_pic = True,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts,
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
        progress_message = "Compiling LibTorch's headers",
    )
    return [CcInfo(compilation_context = cc_common.create_compilation_context(
        headers = depset([header, precompiled]),
    ))]

precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        "header": attr.label(allow_single_file = True, mandatory = True),
        "deps": attr.label_list(providers = [CcInfo]),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

def _with_precompiled(rule, deps = [], copts = [], **kwargs):
    if [dep for dep in deps if dep.startswith("@libtorch")]:
        deps = deps + select({_OFF: [], "//conditions:default": [_TARGET]})
        copts = copts + select({_OFF: [], "//conditions:default": ["-include", _HEADER]})
    rule(deps = deps, copts = copts, **kwargs)

def cc_library(**kwargs):
    _with_precompiled(native.cc_library, **kwargs)

def cc_binary(**kwargs):
    _with_precompiled(native.cc_binary, **kwargs)

def cc_test(**kwargs):
    _with_precompiled(native.cc_test, **kwargs)
