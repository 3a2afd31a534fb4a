"""The tree that `bazel run //:install` copies: programs, headers, one static library, CMake and pkg-config files."""

load(":archive.bzl", "archive", "objects_of")

def _is_ours(label):
    return label.workspace_name == ""

def _objects(linking_context):
    """The objects of this workspace's libraries, in the order of linking."""
    objects = []
    for linker_input in linking_context.linker_inputs.to_list():
        if not _is_ours(linker_input.owner):
            continue
        for library in linker_input.libraries:
            objects += objects_of(library)
    return objects

def _libtorch_folder(linking_context):
    """Where the wheel's libraries lie, without the last /lib."""
    for linker_input in linking_context.linker_inputs.to_list():
        for flag in linker_input.user_link_flags:
            if flag.startswith("-L") and flag.endswith("/lib"):
                return flag[len("-L"):-len("/lib")]
    fail("@libtorch names no -L")

def _install_tree_impl(ctx):
    library = ctx.attr.library[CcInfo]
    libtorch = ctx.attr.libtorch[CcInfo]
    worker_library = archive(ctx, ctx.label.name + ".a", _objects(library.linking_context))
    headers = [h for h in library.compilation_context.headers.to_list() if _is_ours(h.owner)]
    torch_version = [
        h
        for h in libtorch.compilation_context.headers.to_list()
        if h.path.endswith("/include/torch/headeronly/version.h")
    ]

    # make_tree.sh documents the lines.
    arguments = ctx.actions.args()
    arguments.use_param_file("%s", use_always = True)
    arguments.set_param_file_format("multiline")

    # NCCL's header is for the plugin only: it would ask for CUDA's headers.
    defines = [d for d in libtorch.compilation_context.defines.to_list() if d != "USE_C10D_NCCL"]
    for name, value in {
        "LIBTORCH": _libtorch_folder(libtorch.linking_context),
        "DEFINES_LIST": ";".join(defines),
        "DEFINE_FLAGS": " ".join(["-D" + d for d in defines]),
    }.items():
        arguments.add_all(["set", name, value])
    arguments.add_all(["version", ctx.file.version])
    arguments.add_all(["torch_version", torch_version[0]])
    for header in headers:
        arguments.add_all(["header", header, header.short_path])
    arguments.add_all(["public", ctx.attr.public_header, "include/ddprun"])
    arguments.add_all(["file", worker_library, "lib/libddprun_worker.a"])
    inputs = headers + [worker_library, ctx.file.version] + torch_version
    for kind, files in [("file", ctx.attr.files), ("template", ctx.attr.templates)]:
        for target, folder in files.items():
            for file in target[DefaultInfo].files.to_list():
                name = file.basename[:-len(".in")] if file.basename.endswith(".in") else file.basename
                arguments.add_all([kind, file, folder + "/" + name], expand_directories = False)
                inputs.append(file)

    tree = ctx.actions.declare_directory(ctx.label.name)
    ctx.actions.run(
        executable = ctx.executable._make_tree,
        arguments = [tree.path, arguments],
        inputs = inputs,
        outputs = [tree],
        mnemonic = "InstallTree",
    )
    return [DefaultInfo(files = depset([tree]), runfiles = ctx.runfiles([tree]))]

install_tree = rule(
    implementation = _install_tree_impl,
    doc = "A folder that looks as the prefix will after the installation.",
    attrs = {
        "library": attr.label(
            mandatory = True,
            providers = [CcInfo],
            doc = "Its objects, and those it needs, make the archive.",
        ),
        "public_header": attr.string(
            mandatory = True,
            doc = "Installed with all that it includes, and nothing else is.",
        ),
        "libtorch": attr.label(mandatory = True, providers = [CcInfo]),
        "version": attr.label(mandatory = True, allow_single_file = True, doc = "The header that holds kVersion."),
        "files": attr.label_keyed_string_dict(allow_files = True, doc = "File to the folder it goes to."),
        "templates": attr.label_keyed_string_dict(allow_files = True, doc = "The same; @NAME@ is filled in."),
        "_make_tree": attr.label(default = "//packaging:make_tree", executable = True, cfg = "exec"),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    fragments = ["cpp"],
)
