"""DistributedDataParallel's reducers, across rounds.

With three or more ranks the bits of a sum depend on a gradient's place in its bucket. DDP lays its buckets out anew
after the first step, so ranks of different age would have different ones, and a run with a recovery other bits than a
run without. Therefore the layout belongs to the training state: it changes before a step commits instead of in the next
forward, and after a recovery all ranks make their reducers with the layout of the rank that has the state.

The buffers of the model are set to those of rank 0 before a step commits, too; DDP does it before the next forward,
where they would be lost with rank 0.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

Layout = list[list[int]]  # parameters of each bucket, by index in the order of DDP


def layout(ddp: DistributedDataParallel) -> Layout:
    """Returns the current buckets."""
    index = {id(parameter): i for i, parameter in enumerate(ddp._build_params_for_reducer()[0])}
    return [[index[id(p)] for p in bucket.parameters()] for bucket in ddp.reducer._get_zeros_like_grad_buckets()]


def remake(ddp: DistributedDataParallel, buckets: Layout) -> None:
    """Makes the reducer anew with these buckets, whatever state an interrupted backward has left the old one in."""
    ddp.reducer._remove_autograd_hooks()
    parameters, sparse = ddp._build_params_for_reducer()
    # Reducers have no argument for this in common to all versions of PyTorch.
    assign = dist._compute_bucket_assignment_by_size
    dist._compute_bucket_assignment_by_size = lambda *_: (buckets[::-1], [sys.maxsize] * len(buckets))
    try:
        ddp._ddp_init_helper(parameters, sparse, ddp._build_debug_param_to_name_mapping(parameters), ddp.static_graph)
    finally:
        dist._compute_bucket_assignment_by_size = assign
    ddp._has_rebuilt_buckets = False
    if ddp.static_graph:
        ddp.static_graph = False
        ddp._set_static_graph()
    for hook, hook_state in ddp._comm_hooks:
        dist._register_comm_hook(ddp.reducer, hook_state, hook)


def flatten(tensors: list[torch.Tensor]) -> dict[torch.dtype, torch.Tensor]:
    """Returns copies of the tensors, one flat tensor for each dtype."""
    by_dtype: dict[torch.dtype, list[torch.Tensor]] = {}
    for tensor in tensors:
        by_dtype.setdefault(tensor.dtype, []).append(tensor.detach().reshape(-1))
    return {dtype: torch.cat(flat) for dtype, flat in by_dtype.items()}


def unflatten(flat: dict[torch.dtype, torch.Tensor], like: list[torch.Tensor]) -> list[torch.Tensor]:
    """Returns views of flat tensors, in the order and the shapes of the tensors that they were made from."""
    pieces: dict[torch.dtype, Any] = {
        dtype: iter(values.split([tensor.numel() for tensor in like if tensor.dtype == dtype]))
        for dtype, values in flat.items()
    }
    return [next(pieces[tensor.dtype]).view_as(tensor) for tensor in like]
