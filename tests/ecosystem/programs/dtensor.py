"""Tensor parallelism with DTensor (parallelize_module), saved by each rank with torch.save."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import common

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)


def file(step):
    return common.CHECKPOINTS / f"step_{step}.{dist.get_rank()}"


begin = common.latest()
if begin:
    model.load_state_dict(torch.load(file(begin), weights_only=False))
common.CHECKPOINTS.mkdir(exist_ok=True)
for step in range(begin + 1, common.STEPS + 1):
    batch = torch.randn(4, 8, generator=torch.Generator().manual_seed(100 * step))
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if common.to_save(step):
        torch.save(model.state_dict(), file(step))
        dist.barrier()
    common.step_done(step)

rows = distribute_tensor(torch.arange(8.0).reshape(4, 2), mesh, [Shard(0)])
whole = (rows @ rows.T).full_tensor()
common.result(
    loss=loss.item(),
    parameters=common.digest(p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters()),
    product=whole.sum().item(),
)
dist.destroy_process_group()
