"""Tests on simulated GPUs."""

def simulated_gpu_test(name, test, args = [], data = [], env = {}, tags = [], **kwargs):
    """Runs a test program that wants a GPU on simulated ones.

    Args:
      test: the cc_test; its `env` does not apply here.
      args: arguments of the program.
    """
    native.sh_test(
        name = name,
        srcs = ["//tests/simgpu:run.sh"],
        args = ["$(rootpath %s)" % test] + args,
        data = data + [test, "//tests/simgpu:libraries"],
        env = dict(env, OMP_NUM_THREADS = "1"),
        tags = ["libtorch", "no_asan_ubsan", "simgpu"] + tags,
        **kwargs
    )
