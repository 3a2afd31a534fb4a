"""LibTorch as it lies in the PyTorch wheel.

The wheel is looked for in the Python named by DDPRUN_PYTHON, else in the checkout's .venv (scripts/setup makes it). It
is found without importing torch, so that the rule costs nothing to those who do not use it.
"""

_FIND_TORCH = "import importlib.util; print(importlib.util.find_spec('torch').submodule_search_locations[0])"

# The wheel's own Protobuf (3.13) would clash with the system's; pybind11 is not used here.
_LEFT_OUT = ["google", "pybind11"]

def _libtorch_impl(ctx):
    python = ctx.os.environ.get("DDPRUN_PYTHON")
    if not python:
        python = str(ctx.path(ctx.attr.workspace_file).dirname) + "/.venv/bin/python"
    found = ctx.execute([python, "-c", _FIND_TORCH])
    if found.return_code != 0:
        fail("no PyTorch wheel for %s: call scripts/setup, or set DDPRUN_PYTHON to a Python that has torch" % python)
    torch = ctx.path(found.stdout.strip())
    lib = str(torch.get_child("lib"))

    for entry in torch.get_child("include").readdir():
        if entry.basename not in _LEFT_OUT:
            ctx.symlink(entry, "include/" + entry.basename)

    # The run path is the wheel's real folder: its libraries find those of NVIDIA relative to their own location.
    # libtorch_cpu depends on CUDA's profiling libraries, which the loader finds and the linker can ignore.
    linkopts = ["-L" + lib, "-Wl,-rpath," + lib, "-Wl,--allow-shlib-undefined", "-ltorch_cpu", "-lc10"]
    cuda_linkopts = []

    # Precompiled headers do not record their dependencies in the compiler's list, so the version is part of the command
    # line.
    version = ctx.read(torch.get_child("version.py")).split("__version__ = '")[1].split("'")[0]
    defines = ["USE_DISTRIBUTED", "USE_C10D_GLOO", "USE_RPC", "USE_TENSORPIPE", "DDPRUN_LIBTORCH=" + version]
    includes = ["include", "include/torch/csrc/api/include"]

    nvidia = torch.dirname.get_child("nvidia")
    cuda = nvidia.get_child("cu13").get_child("include")
    nccl = nvidia.get_child("nccl").get_child("include")
    if cuda.exists and nccl.exists:
        ctx.symlink(cuda, "cuda")
        ctx.symlink(nccl, "nccl")
        includes += ["cuda", "nccl"]
        defines.append("USE_C10D_NCCL")

        # Linked even without referenced symbols: loading them registers CUDA.
        cuda_linkopts = ["-Wl,--no-as-needed", "-ltorch_cuda", "-lc10_cuda", "-Wl,--as-needed"]

    ctx.template("BUILD", ctx.attr.build_template, {
        "%{DEFINES}": repr(defines),
        "%{INCLUDES}": repr(includes),
        "%{LINKOPTS}": repr(linkopts),
        "%{CUDA_LINKOPTS}": repr(cuda_linkopts),
    })

libtorch_repository = repository_rule(
    implementation = _libtorch_impl,
    attrs = {
        "build_template": attr.label(default = "@ddprun//third_party/libtorch:libtorch.BUILD"),
        "workspace_file": attr.label(default = "@ddprun//:WORKSPACE"),
    },
    environ = ["DDPRUN_PYTHON"],
    local = True,
)
