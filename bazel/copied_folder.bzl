"""A folder beside built files with copies of source files."""

def _copied_folder_impl(ctx):
    folder = ctx.actions.declare_directory(ctx.label.name)
    arguments = ctx.actions.args()
    arguments.add(folder.path)
    arguments.add(ctx.attr.strip_prefix)
    arguments.add_all(ctx.files.srcs)
    ctx.actions.run_shell(
        arguments = [arguments],
        command = """
            folder=$1 prefix=$2
            shift 2
            for file; do
              mkdir -p "$(dirname "$folder/${file#"$prefix"/}")"
              cp -L "$file" "$folder/${file#"$prefix"/}"
            done""",
        inputs = ctx.files.srcs,
        outputs = [folder],
        mnemonic = "CopiedFolder",
    )
    return [DefaultInfo(files = depset([folder]), runfiles = ctx.runfiles([folder]))]

copied_folder = rule(
    implementation = _copied_folder_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = True),
        "strip_prefix": attr.string(doc = "The part of the sources' paths that the folder stands for."),
    },
)
