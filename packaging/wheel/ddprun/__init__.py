"""ddprun launches distributed PyTorch training like torchrun.

The commands `ddprun` and `rendezvousd` are native programs. This package starts ddprun from Python:
``python -m ddprun``, :func:`run` for a command line, :func:`launch` and :class:`elastic_launch` for a function.
:mod:`ddprun.worker` is for the workers themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .process import program, run

if TYPE_CHECKING:
    __version__: str
    from .launcher import ChildFailedError, LaunchConfig, elastic_launch, launch

__all__ = ["ChildFailedError", "LaunchConfig", "elastic_launch", "launch", "program", "run"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        import subprocess

        # Stated in the program only.
        return subprocess.run([program(), "--version"], stdout=subprocess.PIPE, check=True, text=True).stdout.split()[1]
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import launcher

    return getattr(launcher, name)
