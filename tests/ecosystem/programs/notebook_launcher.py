"""A function that Accelerate's notebook_launcher starts; jupyter_kernel.py runs this text as a cell."""


def train(seed):
    import runpy

    import common

    assert seed == 1
    runpy.run_path(str(common.PROGRAMS / "accelerate_ddp.py"))


def launch():
    from accelerate import notebook_launcher

    notebook_launcher(train, (1,), num_processes=2, max_restarts=1)


if __name__ == "__main__":
    launch()
