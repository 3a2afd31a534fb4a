"""The linker inputs of a program, for a linker outside of Bazel."""

load("//packaging:archive.bzl", "archive")

def _link_parts_impl(ctx):
    whole, on_demand, names = [], [], []
    for linker_input in ctx.attr.library[CcInfo].linking_context.linker_inputs.to_list():
        for library in linker_input.libraries:
            objects = library.pic_objects or library.objects or []
            if library.alwayslink:
                whole += objects
            else:
                on_demand += objects
        names += [f[len("-l"):] for f in linker_input.user_link_flags if f.startswith("-l")]

    list = ctx.actions.declare_file(ctx.label.name + "/libraries.txt")
    ctx.actions.write(list, "".join([name + "\n" for name in names]))
    outputs = [archive(ctx, ctx.label.name + "/whole.a", whole), list]
    if on_demand:
        outputs.append(archive(ctx, ctx.label.name + "/on_demand.a", on_demand))
    return [DefaultInfo(files = depset(outputs), runfiles = ctx.runfiles(outputs))]

link_parts = rule(
    implementation = _link_parts_impl,
    doc = """A folder with whole.a (all objects of libraries with alwayslink), on_demand.a (the others, if there are
any) and libraries.txt (the names of libraries of the system, dependents first).""",
    attrs = {
        "library": attr.label(mandatory = True, providers = [CcInfo]),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    fragments = ["cpp"],
)
