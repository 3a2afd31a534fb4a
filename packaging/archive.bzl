"""Inputs of linkers outside of Bazel: static libraries of given objects, and all parts of a program."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def archive(ctx, name, objects):
    """Declares the file `name` and makes it of `objects`. The rule needs the C++ toolchain."""
    tool_chain = find_cpp_toolchain(ctx)
    file = ctx.actions.declare_file(name)
    arguments = ctx.actions.args()

    # Appending keeps objects of the same base name apart, which replacing (r) would not.
    arguments.add("qcsD")
    arguments.add(file)
    arguments.add_all(objects)
    ctx.actions.run(
        executable = tool_chain.ar_executable,
        arguments = [arguments],
        inputs = depset(objects, transitive = [tool_chain.all_files]),
        outputs = [file],
        mnemonic = "CppArchive",
    )
    return file

def objects_of(library):
    return library.pic_objects or library.objects or []

def _link_parts_impl(ctx):
    whole, on_demand, names = [], [], []
    for linker_input in ctx.attr.library[CcInfo].linking_context.linker_inputs.to_list():
        for library in linker_input.libraries:
            (whole if library.alwayslink else on_demand).extend(objects_of(library))
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
