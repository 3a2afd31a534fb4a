"""A static library of given objects."""

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
