"""The distribution's libraries, as pkg-config describes them.

Their headers and archives lie in the compiler's own search path, where Bazel does not see them change. So each
library's version is part of every command that compiles or links with it: after an upgrade these run again, and a disk
cache returns nothing that was built with another version. The versions are read when Bazel starts: call
`bazel shutdown` after an upgrade.

PKG_CONFIG names another pkg-config, and PKG_CONFIG_PATH folders to search first. With a cross compiler in CC, its
architecture's packages are taken.
"""

# Packages of libraries that are linked; the last one's version counts. Abseil is split into many: these are the ones
# that our sources include.
_LINKED = {
    "absl": ["absl_" + name for name in [
        "btree",
        "cleanup",
        "cord",
        "flat_hash_map",
        "flat_hash_set",
        "function_ref",
        "hash",
        "random_random",
        "span",
        "status",
        "statusor",
        "str_format",
        "strings",
        "symbolize",
        "synchronization",
        "time",
    ]],
    "crypto": ["libcrypto"],
    # gRPC's package file names RE2, but not what newer versions of that need.
    "grpc": ["re2", "grpc++"],
    "openssl": ["openssl"],
    "protobuf": ["protobuf"],
    "sqlite": ["sqlite3"],
}

# Only tests need these, or there is nothing to link: one that is missing is the compiler's to report.
_NOT_LINKED = {
    "cli11": "CLI11",
    "gtest": "gtest",
    "json": "nlohmann_json",
    "xxhash": "libxxhash",
}

_BOOST = "/usr/include/boost/version.hpp"

def _pkg_config(ctx, arguments):
    """Returns what pkg-config prints, or None if it knows no such package."""
    environment = {}
    compiler = ctx.os.environ.get("CC")
    if compiler:
        # "aarch64-linux-gnu" on Debian; nothing on most other distributions.
        multiarch = ctx.execute([compiler, "-print-multiarch"])
        if multiarch.return_code == 0 and multiarch.stdout.strip():
            environment["PKG_CONFIG_LIBDIR"] = "/usr/lib/%s/pkgconfig:/usr/share/pkgconfig" % multiarch.stdout.strip()
    program = ctx.os.environ.get("PKG_CONFIG", "pkg-config")
    if not ctx.which(program):
        fail("there is no %s: call scripts/setup, or set PKG_CONFIG" % program)
    done = ctx.execute([program] + arguments, environment = environment)
    return done.stdout.strip() if done.return_code == 0 else None

def _version(ctx, package):
    """Version of the distribution's package where dpkg knows it, else what pkg-config says; or None."""
    version = _pkg_config(ctx, ["--modversion", package])
    if version == None or not ctx.which("dpkg-query"):
        return version
    file = "%s/%s.pc" % (_pkg_config(ctx, ["--variable=pcfiledir", package]), package)
    owner = ctx.execute(["dpkg-query", "-S", file])
    if owner.return_code != 0:
        return version
    owner = owner.stdout[:owner.stdout.rindex(": ")]
    return ctx.execute(["dpkg-query", "-W", "-f", "${Version}", owner]).stdout.strip()

def _names(flags):
    """The names after -l, each at its last place: a library stands before those it needs."""
    names = [flag[len("-l"):] for flag in flags.split(" ") if flag.startswith("-l")]
    return [name for i, name in enumerate(names) if name not in names[i + 1:]]

def _system_libraries_impl(ctx):
    versions = {}
    for name, packages in _LINKED.items():
        versions[name] = _version(ctx, packages[-1])
        if versions[name] == None:
            fail("pkg-config does not know %s: call scripts/setup, or set PKG_CONFIG_PATH" % packages[-1])
    for name, package in _NOT_LINKED.items():
        versions[name] = _version(ctx, package) or "none"
    versions["boost"] = "none"
    if ctx.path(_BOOST).exists:
        versions["boost"] = ctx.read(_BOOST).split('#define BOOST_LIB_VERSION "')[1].split('"')[0]

    links, directories = {}, {}
    for name, packages in _LINKED.items():
        if name == "absl":
            # All that the others need of it is in one list, in one order.
            packages = packages + [p for other in _LINKED.values() for p in other]
        flags = _pkg_config(ctx, ["--static", "--libs"] + packages)
        if flags == None:
            fail("pkg-config does not know all of %s: call scripts/setup" % " ".join(packages))
        directories.update({flag: True for flag in flags.split(" ") if flag.startswith("-L")})
        links[name] = [n for n in _names(flags) if n.startswith("absl_") == (name == "absl")]

    ctx.symlink(ctx.attr.build_file, "BUILD")
    ctx.file("packages.bzl", "".join([
        "%s = %s\n" % (name, repr(value))
        for name, value in {"DIRECTORIES": directories.keys(), "LINKS": links, "VERSIONS": versions}.items()
    ]))

system_libraries = repository_rule(
    implementation = _system_libraries_impl,
    attrs = {"build_file": attr.label(default = "@ddprun//third_party/system:system.BUILD")},
    environ = ["CC", "PKG_CONFIG", "PKG_CONFIG_PATH"],
    configure = True,
    local = True,
)
