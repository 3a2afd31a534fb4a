"""A rule like cc_library for a library of the distribution."""

# Parts of the C library, which stays shared.
_C_LIBRARY = ["c", "dl", "m", "pthread", "resolv", "rt"]

def _system_library_impl(ctx):
    # The linker does not read it, but another version makes it run again. So does a genrule that has this as a tool.
    version = ctx.actions.declare_file(ctx.label.name + ".version")
    ctx.actions.write(version, ctx.attr.version + "\n")
    info = CcInfo(
        compilation_context = cc_common.create_compilation_context(
            # Bazel tracks neither /usr/include nor what a precompiled header was made from.
            defines = depset(["DDPRUN_%s=%s" % (ctx.label.name.upper(), ctx.attr.version)] + ctx.attr.defines),
        ),
        linking_context = cc_common.create_linking_context(linker_inputs = depset([cc_common.create_linker_input(
            owner = ctx.label,
            additional_inputs = depset([version]),
            user_link_flags = depset(ctx.attr.linkopts),
        )])),
    )
    return [
        DefaultInfo(files = depset([version])),
        cc_common.merge_cc_infos(direct_cc_infos = [info], cc_infos = [dep[CcInfo] for dep in ctx.attr.deps]),
    ]

_system_library = rule(
    implementation = _system_library_impl,
    attrs = {
        "defines": attr.string_list(),
        "deps": attr.label_list(providers = [CcInfo]),
        "linkopts": attr.string_list(),
        "version": attr.string(mandatory = True),
    },
    provides = [CcInfo],
)

def system_library(name, version, names = [], directories = [], linkopts = [], **kwargs):
    """A library of the distribution.

    Args:
      name: What targets depend on.
      version: When it changes, everything that depends on the library is compiled and linked again.
      names: Libraries to link, dependents first: the static archives, or the shared ones where link=shared is defined.
      directories: Linker flags that say where these lie.
      linkopts: Further linker flags.
      **kwargs: defines and deps, as in cc_library.
    """
    shared = ["-l" + name for name in names if name in _C_LIBRARY] + linkopts
    flags = ["-l" + name for name in names if name not in _C_LIBRARY]
    _system_library(
        name = name,
        linkopts = shared if not flags else directories + select({
            "@system//:shared": flags,
            "//conditions:default": ["-Wl,-Bstatic"] + flags + ["-Wl,-Bdynamic"],
        }) + shared,
        version = version,
        **kwargs
    )
