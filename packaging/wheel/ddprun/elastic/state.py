"""The training state that all ranks have in common, and what a step changes of it.

A step commits in the optimizer's step: until then parameters and the optimizer's state are unchanged. So an interrupted
step is undone without copies of them. Only what forward and backward change is saved before each step: buffers (those
of BatchNorm), hyperparameters, and the small state_dicts of schedulers and scalers.

Another rank gets the state as of the moment after the last step (`State.offer`), before anything that the script does
between two epochs, which that rank does itself.
"""

from __future__ import annotations

import os
import pickle
from typing import Any, Iterable, Iterator, NamedTuple, Optional

import torch
from torch.nn.parallel import DistributedDataParallel

_CHUNK = 8 << 20  # bytes of small tensors that are sent together
_FILE = "elastic.pt"


class Position(NamedTuple):
    """A place in the training. Of two ranks, the one with the larger position has the newer state."""

    step: int  # committed optimizer steps
    ended: int  # last epoch whose loop over the batches has ended; -1: none
    results: int  # results of `Worker.retry` that are kept


class _Slot(NamedTuple):
    """Stands for a tensor in a structure that is sent without its tensors."""

    index: int
    shape: torch.Size
    dtype: torch.dtype
    device: str  # type only; each rank has its own device


class _Mark(NamedTuple):
    """Everything that a step changes before the optimizer's step."""

    buffers: list[torch.Tensor]
    groups: list[dict[str, Any]]  # hyperparameters of each parameter group
    objects: bytes


def unwrap(model: torch.nn.Module) -> torch.nn.Module:
    """Returns the module within DistributedDataParallel and torch.compile."""
    while True:
        if isinstance(model, DistributedDataParallel):
            model = model.module
        elif hasattr(model, "_orig_mod"):
            model = model._orig_mod
        else:
            return model


def take_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    """Returns a copy of nested dicts, lists and tuples with slots in the place of tensors, which are appended."""
    if isinstance(value, torch.Tensor):
        tensors.append(value.detach())
        return _Slot(len(tensors) - 1, value.shape, value.dtype, value.device.type)
    if isinstance(value, dict):
        return {key: take_tensors(item, tensors) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(take_tensors(item, tensors) for item in value)
    return value


def put_tensors(value: Any, tensors: list[torch.Tensor], device: torch.device) -> Any:
    """Undoes `take_tensors`. Tensors that were not on the CPU come to `device`."""
    if isinstance(value, _Slot):
        return tensors[value.index].to("cpu" if value.device == "cpu" else device)
    if isinstance(value, dict):
        return {key: put_tensors(item, tensors, device) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(put_tensors(item, tensors, device) for item in value)
    return value


class Parts(NamedTuple):
    """Tensors that are sent in one broadcast: a large one alone, small ones of one dtype together."""

    indices: list[int]
    elements: int
    dtype: torch.dtype
    on_gpu: bool


def parts(specs: list[tuple[torch.Size, torch.dtype, bool]]) -> Iterator[Parts]:
    """Divides tensors of these shapes, dtypes and places (True: GPU) into broadcasts, in the same way on all ranks."""
    small: dict[tuple[torch.dtype, bool], tuple[list[int], int]] = {}
    for i, (shape, dtype, on_gpu) in enumerate(specs):
        size, kind = shape.numel(), (dtype, on_gpu)
        if size * dtype.itemsize >= _CHUNK:
            yield Parts([i], size, *kind)
            continue
        indices, elements = small.get(kind, ([], 0))
        if elements and (elements + size) * dtype.itemsize > _CHUNK:
            yield Parts(indices, elements, *kind)
            indices, elements = [], 0
        small[kind] = ([*indices, i], elements + size)
    for kind, (indices, elements) in small.items():
        if elements:
            yield Parts(indices, elements, *kind)


class State:
    """Model, optimizers, and any objects with state_dict and load_state_dict. Used by the main thread only."""

    def __init__(self, model: torch.nn.Module, optimizers: list[torch.optim.Optimizer], others: dict[str, Any]) -> None:
        self.model = unwrap(model)
        self.optimizers = optimizers
        modules = [self.model]
        self.objects: dict[str, Any] = {}
        for name, value in others.items():
            if isinstance(value, torch.nn.Module):
                modules.append(unwrap(value))
            elif not (hasattr(value, "state_dict") and hasattr(value, "load_state_dict")):
                raise TypeError(f"worker.state: {name} has no state_dict and load_state_dict")
            else:
                self.objects[name] = value
        known = {id(p) for module in modules for p in module.parameters()}
        for group in self._groups():
            if any(id(p) not in known for p in group["params"]):
                raise ValueError("worker.state: an optimizer has a parameter that is not one of the model's")
        self.parameters = [p for module in modules for p in module.parameters()]
        self.buffers = [b for module in modules for b in module.buffers()]
        self.step: Optional[int] = None  # committed steps; None: this process holds no state yet
        self.epoch, self.batch = 0, 0  # place in the data: committed batches of this epoch
        self.ended = -1  # last epoch whose loop over the batches has ended
        self.results: dict[tuple[int, int], Any] = {}  # Worker.retry's, by epoch and number of the call in it
        self._saved: Optional[_Mark] = None
        self._offered: Any = None  # _Mark, epoch, batch

    def position(self) -> Optional[Position]:
        return None if self.step is None else Position(self.step, self.ended, len(self.results))

    def mark(self, synced: Optional[list[tuple[torch.Tensor, int]]] = None) -> None:
        """Remembers what a step changes. `synced`: copies of the buffers, each with the buffer's version if unchanged.

        The copies become this object's own.
        """
        if synced is None:
            buffers = [buffer.detach().clone() for buffer in self.buffers]
        else:
            buffers = [
                copy if buffer._version == version else buffer.detach().clone()
                for buffer, (copy, version) in zip(self.buffers, synced)
            ]
        groups = [
            {
                key: value.clone() if isinstance(value, torch.Tensor) else value
                for key, value in group.items()
                if key != "params"
            }
            for group in self._groups()
        ]
        objects = pickle.dumps({name: value.state_dict() for name, value in self.objects.items()})
        self._saved = _Mark(buffers, groups, objects)

    def offer(self) -> None:
        """From now on, other ranks get the state as it was at the last `mark`."""
        self._offered = (self._saved, self.epoch, self.batch)

    def advance(self, batches: int) -> None:
        """Counts a committed step of so many batches."""
        assert self.step is not None
        self.step += 1
        self.batch += batches
        if any(epoch < self.epoch for epoch, _ in self.results):
            self.results = {key: value for key, value in self.results.items() if key[0] >= self.epoch}

    def rollback(self) -> None:
        """Undoes a step whose update has not begun: back to the last `mark`, without gradients."""
        assert self._saved is not None
        self._restore(self._saved)
        for parameter in self.parameters:
            parameter.grad = None

    def pack(self) -> tuple[dict[str, Any], list[torch.Tensor]]:
        """Returns the offered state: a structure that can be pickled, and its tensors, not copied."""
        mark, epoch, batch = self._offered
        tensors: list[torch.Tensor] = []
        value = {
            "parameters": self.parameters,
            "buffers": mark.buffers,
            "optimizers": [
                [optimizer.state.get(p, {}) for group in optimizer.param_groups for p in group["params"]]
                for optimizer in self.optimizers
            ],
            "groups": mark.groups,
            "objects": mark.objects,
            "place": (self.step, epoch, batch, self.ended),
            "results": self.results,
        }
        return take_tensors(value, tensors), tensors

    def unpack(self, packed: dict[str, Any], tensors: list[torch.Tensor]) -> None:
        """Adopts what `pack` of another process has returned. Its tensors become this object's own."""
        device = self.parameters[0].device if self.parameters else torch.device("cpu")
        value = put_tensors(packed, tensors, device)
        sizes = [len(self.parameters), len(self.buffers), len(self.optimizers), len(self._groups())]
        if sizes != [len(value[name]) for name in ("parameters", "buffers", "optimizers", "groups")]:
            raise ValueError("the training state is of another model or other optimizers than those of this script")
        with torch.no_grad():
            for mine, its in zip(self.parameters, value["parameters"]):
                mine.copy_(its)
        for optimizer, its_state in zip(self.optimizers, value["optimizers"]):
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            for parameter, its in zip(parameters, its_state):
                if its:
                    optimizer.state[parameter] = its
                else:
                    optimizer.state.pop(parameter, None)
        self._restore(_Mark(value["buffers"], value["groups"], value["objects"]))
        self.step, self.epoch, self.batch, self.ended = value["place"]
        self.results = value["results"]
        self.mark()
        self.offer()

    def digest(self) -> int:
        """Returns a checksum of parameters and the optimizers' state, equal on all ranks after each step."""
        tensors = list(self.parameters)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    take_tensors(optimizer.state.get(parameter, {}), tensors)
        total = 0
        for i, tensor in enumerate(tensors):
            words = tensor.detach().contiguous().view(-1).view(torch.uint8)
            if words.numel() % 8 == 0:
                aligned = words.data_ptr() % 8 == 0 and words.storage_offset() % 8 == 0
                words = (words if aligned else words.clone()).view(torch.int64)
            total = (total * 31 + i + int(words.sum(dtype=torch.int64))) & (2**63 - 1)
        return total

    def save(self, folder: str) -> None:
        """Writes the offered state to FOLDER/elastic.pt, atomically. Raises OSError."""
        packed, tensors = self.pack()
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, _FILE)
        with open(path + ".new", "wb") as file:
            torch.save({"packed": pickle.dumps(packed), "tensors": [t.contiguous() for t in tensors]}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".new", path)

    def load(self, folder: str) -> bool:
        """Adopts what `save` has written. Returns False if there is nothing."""
        path = os.path.join(folder, _FILE)
        if not os.path.exists(path):
            return False
        contents = torch.load(path, map_location="cpu", weights_only=False)
        self.unpack(pickle.loads(contents["packed"]), contents["tensors"])
        return True

    def _groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    def _restore(self, mark: _Mark) -> None:
        with torch.no_grad():
            for buffer, value in zip(self.buffers, mark.buffers):
                buffer.copy_(value.view_as(buffer))
        for group, values in zip(self._groups(), mark.groups):
            for key, value in values.items():
                if isinstance(value, torch.Tensor) and isinstance(group.get(key), torch.Tensor):
                    group[key].copy_(value)
                else:
                    group[key] = value
        for name, value in pickle.loads(mark.objects).items():
            self.objects[name].load_state_dict(value)
            if isinstance(self.objects[name], torch.amp.GradScaler):
                # Without this it would take the repeated step's gradients for unscaled ones.
                self.objects[name]._per_optimizer_states.clear()


def optimizers_of(value: Any) -> list[torch.optim.Optimizer]:
    """Returns the optimizers of one, or of a list."""
    optimizers = list(value) if isinstance(value, Iterable) else [value]
    for optimizer in optimizers:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(f"worker.state: {type(optimizer).__name__} is not an optimizer")
    return optimizers
