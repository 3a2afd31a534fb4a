"""Link lines for the distribution's libraries."""

def link(names):
    """-l flags for `names`: the static archives, or the shared libraries where link=shared is defined."""
    flags = ["-l" + name for name in names]
    return select({
        "@system//:shared": flags,
        "//conditions:default": ["-Wl,-Bstatic"] + flags + ["-Wl,-Bdynamic"],
    })
