"""Linker flags for a program that contains libstdc++ and libgcc (see BUILD)."""

STATIC_CXX = select({
    "//third_party/static_cxx:asan_ubsan": [],
    "@system//:shared": [],
    "//conditions:default": [
        "-Lthird_party/static_cxx",
        "-static-libgcc",
    ],
})
