"""Functions and programs under ddprun, with the names of torch.distributed.launcher."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass, field, fields
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Union

from . import process
from .function_worker import write_result

Entrypoint = Union[Callable[..., Any], str]
_WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "function_worker.py")


@dataclass
class LaunchConfig:
    """The fields of torch.distributed.launcher.api.LaunchConfig, whose instances are accepted, too."""

    min_nodes: int = 1
    max_nodes: int = 1
    nproc_per_node: int = 1
    logs_specs: Any = None
    run_id: str = ""
    role: str = "default_role"
    rdzv_endpoint: str = ""
    rdzv_backend: str = "c10d"
    rdzv_configs: Dict[str, Any] = field(default_factory=dict)
    rdzv_timeout: int = -1
    max_restarts: int = 3
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    log_line_prefix_template: Optional[str] = None
    metrics_cfg: Dict[str, str] = field(default_factory=dict)
    local_addr: Optional[str] = None
    event_log_handler: str = "null"
    numa_options: Any = None
    signals_to_handle: str = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
    duplicate_stdout_filters: Optional[List[str]] = None
    duplicate_stderr_filters: Optional[List[str]] = None
    virtual_local_rank: bool = False
    shutdown_timeout: Optional[int] = None

    def __post_init__(self) -> None:
        if self.rdzv_timeout != -1:
            self.rdzv_configs["timeout"] = self.rdzv_timeout


@dataclass
class ProcessFailure:
    """The fields of PyTorch's class of that name, which is used if PyTorch has been imported."""

    local_rank: int
    pid: int
    exitcode: int
    error_file: str
    message: Any = ""


class ChildFailedError(Exception):
    """A worker has failed, and no restart is left. It is PyTorch's exception of that name, too, if PyTorch has been
    imported."""

    name: str
    failures: dict[int, Any]

    def __init__(self, name: str, failures: Optional[dict[int, Any]] = None) -> None:
        super().__init__(name)
        if failures is not None:  # else called by PyTorch's class, with the text
            self.name = name
            self.failures = failures

    def get_first_failure(self) -> tuple[int, Any]:
        return next(iter(self.failures.items()))


def _error_types() -> tuple[Any, Any]:
    if "torch" not in sys.modules:
        return ChildFailedError, ProcessFailure
    from torch.distributed.elastic.multiprocessing import errors

    return type("ChildFailedError", (errors.ChildFailedError, ChildFailedError), {}), errors.ProcessFailure


class elastic_launch:
    """Like torch.distributed.launcher.api.elastic_launch: ``elastic_launch(config, entrypoint)(*args)`` runs a function
    or a program, and returns the results of this node's workers by global rank. See :func:`launch`."""

    def __init__(self, config: Any, entrypoint: Entrypoint, **others: Any) -> None:
        self._config = config
        self._entrypoint = entrypoint
        self._others = others

    def __call__(self, *args: Any) -> dict[int, Any]:
        return launch_agent(self._config, self._entrypoint, list(args), **self._others)


def launch(
    fn: Entrypoint, args: Sequence[Any] = (), nproc_per_node: Union[int, str] = 1, **flags: Any
) -> dict[int, Any]:
    """Runs ``fn(*args)`` in `nproc_per_node` workers, and returns their results by global rank.

    `flags` are ddprun's flags: ``launch(train, (3,), nproc_per_node=4, max_restarts=2, on_hang="restart")``. Only the
    results of this node's workers are returned, none for a program. `fn` may be the name of a program. A function is
    called in new interpreters, which import it as multiprocessing's "spawn" does; functions of a notebook need the
    package cloudpickle. With ``start_method="fork"`` the workers are forked from this process, which must not have used
    a GPU, and need neither.

    Output goes to ``sys.stdout`` and ``sys.stderr``. If these are not the process's own (in a notebook, they are the
    cell's), each line begins with the rank.

    Raises ChildFailedError if a worker fails and no restart is left, KeyboardInterrupt if interrupted, which stops the
    workers first, and RuntimeError if the job can't start.
    """
    if _is_redirected() and nproc_per_node != 1:
        flags = {"tee": "3", "log_line_prefix_template": "[${rank}] ", **flags}
    return _Job(fn, args, {"nproc_per_node": nproc_per_node, **flags}).run()


def launch_agent(
    config: Any, entrypoint: Entrypoint, args: Sequence[Any], *, _program: Optional[str] = None, **others: Any
) -> dict[int, Any]:
    """Like torch.distributed.launcher.api.launch_agent. `config` may be PyTorch's LaunchConfig. `others` are parameters
    that only some versions of PyTorch's function have; they have no effect."""
    _note_ignored("launch_agent", [name for name, value in others.items() if value is not None])
    job = _Job(entrypoint, args, _flags_of(config), _program)
    # torchrun limits the threads of scripts, but not of functions.
    job.unset = [name for name in ("OMP_NUM_THREADS",) if name not in os.environ]
    return job.run()


def _note_ignored(name: str, ignored: Sequence[str]) -> None:
    if ignored:
        print(f"ddprun: {name}: {', '.join(ignored)}: unknown to ddprun, no effect", file=sys.stderr)


def _is_redirected() -> bool:
    return sys.stdout is not sys.__stdout__ or sys.stderr is not sys.__stderr__


# ---- settings --------------------------------------------------------------------------------------------------------


def _defaults_of(config: Any) -> Any:
    """Returns a configuration whose values are the defaults of the installed version."""
    for kind in (type(config), LaunchConfig):
        try:
            return kind(config.min_nodes, config.max_nodes, config.nproc_per_node, logs_specs=config.logs_specs)
        except TypeError:  # a class with other parameters
            pass


def _flags_of(config: Any) -> dict[str, Any]:
    defaults = _defaults_of(config)
    flags = {
        "nnodes": f"{config.min_nodes}:{config.max_nodes}",
        "nproc_per_node": config.nproc_per_node,
        # "none": PyTorch's default for any job.
        "rdzv_id": config.run_id if config.run_id != "none" else "",
    }
    for name in ("start_method", "role", "max_restarts", "local_addr", "signals_to_handle", "virtual_local_rank",
                 "duplicate_stdout_filters", "duplicate_stderr_filters", "log_line_prefix_template"):  # fmt: skip
        if getattr(config, name, None) is not None:
            flags[name] = getattr(config, name)
    # PyTorch makes these defaults values; ddprun has its own.
    for name in ("shutdown_timeout", "event_log_handler"):
        if getattr(config, name, None) != getattr(defaults, name, None):
            flags[name] = getattr(config, name)
    conf = {name: value for name, value in config.rdzv_configs.items() if defaults.rdzv_configs.get(name) != value}
    host, _, port = config.rdzv_endpoint.rpartition(":")
    if config.rdzv_backend != "static" or not host:
        flags.update(rdzv_backend=config.rdzv_backend, rdzv_endpoint=config.rdzv_endpoint)
    elif config.max_nodes > 1 or (host, port) != ("127.0.0.1", "29500"):
        # Not for one node if it is the default: several such jobs may run on a host.
        flags.update(master_addr=host, master_port=port)
    flags["rdzv_conf"] = [f"{name}={value}" for name, value in conf.items()]
    numa = getattr(config, "numa_options", None)
    if numa is not None:
        flags["numa_binding"] = numa.affinity_mode.value
    known = {field.name for field in fields(LaunchConfig)} - {"metrics_cfg"}
    given = [name for name, value in vars(config).items() if value != getattr(defaults, name, None)]
    _note_ignored("LaunchConfig", [name for name in given if name not in known])
    if type(config.logs_specs).__name__ not in ("DefaultLogsSpecs", "NoneType"):
        _note_ignored("logs_specs", [type(config.logs_specs).__name__])
    return {**flags, **_log_flags(config.logs_specs)}


def _log_flags(specs: Any) -> dict[str, Any]:
    """The flags for a DefaultLogsSpecs, which has no public members for them."""
    if specs is None:
        return {}

    def streams(name: str) -> str:
        choice = getattr(specs, name, 0)
        if isinstance(choice, Mapping):
            return ",".join(f"{rank}:{int(chosen)}" for rank, chosen in choice.items())
        return str(int(choice or 0))

    folder = getattr(specs, "_root_log_dir", None)
    flags = {"redirects": streams("_redirects"), "tee": streams("_tee"), "log_dir": folder}
    if getattr(specs, "_local_ranks_filter", None):
        flags["local_ranks_filter"] = sorted(specs._local_ranks_filter)
    folder = str(folder)
    if os.path.basename(folder).startswith("torchelastic_") and os.path.dirname(folder) == tempfile.gettempdir():
        # PyTorch made this folder because none was given; ddprun needs none.
        flags["log_dir"] = None
        try:
            os.rmdir(folder)
        except OSError:
            pass
    return flags


def _arguments(flags: Mapping[str, Any]) -> list[str]:
    """Returns flags as words. None, False and empty values leave a flag out; lists are separated by commas."""
    words = []
    for name, value in flags.items():
        if value is None or value is False or value == "" or value == []:
            continue
        word = "--" + name.replace("_", "-")
        if isinstance(value, (list, tuple, set)):
            value = ",".join(str(item).replace(",", ",,") for item in value)
        words.append(word if value is True else f"{word}={value}")
    return words


# ---- a job -----------------------------------------------------------------------------------------------------------


class _Job:
    def __init__(
        self, entrypoint: Entrypoint, args: Sequence[Any], flags: dict[str, Any], program: Optional[str] = None
    ) -> None:
        self.name = entrypoint if isinstance(entrypoint, str) else getattr(entrypoint, "__name__", str(entrypoint))
        self.entrypoint = entrypoint
        self.args = list(args)
        self.flags = {name: value for name, value in flags.items() if name != "start_method"}
        self.forks = flags.get("start_method") == "fork" and not isinstance(entrypoint, str)
        self.work: Optional[Callable[[], None]] = None
        self.unset: list[str] = []  # variables of the launcher that a function does not see
        self.program = program or process.program()

    def run(self) -> dict[int, Any]:
        folder = tempfile.mkdtemp(prefix="ddprun_")
        try:
            return self._run_in(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _run_in(self, folder: str) -> dict[int, Any]:
        command = self._command(folder)
        error_file = os.path.join(folder, "error.json")
        # torch.distributed.run has made them values of the configuration; others are flags of ddprun alone.
        environment = {
            name: value
            for name, value in process.environment(self.work is None and not self.flags.get("no_python")).items()
            if not name.startswith("PET_") or name[len("PET_") :].lower() not in self.flags
        }
        environment["TORCHELASTIC_ERROR_FILE"] = error_file
        if command[0] == _WORKER:
            environment["DDPRUN_FUNCTION"] = self.name
        arguments = [*_arguments(self.flags), *command]
        launcher = process.Launcher(self.program, arguments, environment, _is_redirected(), self.work, folder)
        code = launcher.run()
        for number in launcher.signals:
            if code == 128 + number:
                self._raise_signal(number)
        if os.path.exists(error_file):
            raise self._error(error_file, code)
        if code != 0:
            raise RuntimeError(f"ddprun exited with {code}; its messages tell why")
        return _read_results(folder)

    def _command(self, folder: str) -> list[str]:
        words = [str(arg) for arg in self.args]
        if isinstance(self.entrypoint, str):
            module = words[:2] == ["-u", "-m"]
            script = words[2:] if module else words[1:]
            if self.entrypoint in (os.environ.get("PYTHON_EXEC"), sys.executable) and words[:1] == ["-u"]:
                # torch.distributed.run made it from the name of a script, which ddprun can preload.
                if script and not script[0].startswith("-"):
                    self.flags["module"] = module
                    self.name = script[0]
                    return script
            self.flags["no_python"] = True
            return [self.entrypoint, *words]
        if (self.entrypoint.__module__, self.name) == ("torch.distributed.run", "run_script_path"):
            return words
        if self.forks:
            self.work = lambda: write_result(folder, self.entrypoint(*self.args))
        else:
            with open(os.path.join(folder, "call"), "wb") as file:
                file.write(_pickle_call(self.entrypoint, self.args, self.unset))
        return [_WORKER, folder]

    def _raise_signal(self, number: int) -> None:
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        if "torch" in sys.modules:
            from torch.distributed.elastic.multiprocessing import SignalException

            raise SignalException(f"Process {os.getpid()} got signal: {number}", sigval=signal.Signals(number))
        raise SystemExit(128 + number)

    def _error(self, error_file: str, code: int) -> ChildFailedError:
        with open(error_file) as file:
            report = json.load(file)["message"]
        worker = report["extraInfo"]
        outer = os.environ.get("TORCHELASTIC_ERROR_FILE")
        if outer:
            shutil.copyfile(error_file, outer)
        error_type, failure_type = _error_types()
        failure = failure_type(
            local_rank=int(worker.get("local_rank", -1)),
            pid=int(worker.get("pid", 0)),
            exitcode=report.get("errorCode", code),
            error_file=error_file,
        )
        # The folder is about to be removed.
        failure.error_file = outer or "<N/A>"
        traceback = worker.get("py_callstack", "")
        if not traceback:
            failure.message = report["message"]
        error = error_type(self.name, {int(worker.get("rank", -1)): failure})
        # The launcher has printed the summary that would be the exception's text.
        error.args = (f"{self.name} FAILED: {report['message']}" + (f"\n\n{traceback}" if traceback else ""),)
        return error


def _read_results(folder: str) -> dict[int, Any]:
    """Reads results of the last round; the ranks of an earlier one may have been others."""
    rounds: dict[int, dict[int, str]] = {}
    for name in os.listdir(folder):
        kind, _, numbers = name.partition(".")
        if kind == "result":
            round, rank = numbers.split(".")
            rounds.setdefault(int(round), {})[int(rank)] = name
    results = {}
    for rank, name in sorted(rounds[max(rounds)].items()) if rounds else ():
        with open(os.path.join(folder, name), "rb") as file:
            results[rank] = pickle.load(file)
    return results


# ---- functions -------------------------------------------------------------------------------------------------------


def _pickle_call(function: Callable[..., Any], args: list[Any], unset: list[str]) -> bytes:
    """Returns what a new interpreter needs to call the function: variables to unset, multiprocessing's description of
    this interpreter, then the function and its arguments."""
    from multiprocessing import spawn

    this = spawn.get_preparation_data("ddprun")
    for name in ("authkey", "start_method"):
        this.pop(name, None)
    has_file = "init_main_from_path" in this or "init_main_from_name" in this
    call = None
    reason: Exception = ValueError("it is defined in a notebook or an interactive session")
    if has_file or getattr(function, "__module__", "__main__") != "__main__":
        try:
            call = pickle.dumps((function, args))
        except Exception as error:
            reason = error
    if call is None:
        try:
            import cloudpickle
        except ImportError:
            raise TypeError(
                f"can't send {function!r} to the workers ({reason}): install cloudpickle, define it in a module, or"
                ' pass start_method="fork"'
            ) from None
        # Its main module can't be imported by the worker, and need not be.
        for name in ("init_main_from_path", "init_main_from_name"):
            this.pop(name, None)
        call = cloudpickle.dumps((function, args))
    return pickle.dumps(unset) + pickle.dumps(this) + call
