"""DistributedDataParallel with distributed checkpoints (torch.distributed.checkpoint)."""
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import common

dist.init_process_group("gloo")
torch.manual_seed(1)
model = torch.nn.parallel.DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

begin = common.latest()
if begin:
    weights, moments = get_state_dict(model, optimizer)
    dcp.load({"model": weights, "optimizer": moments}, checkpoint_id=common.CHECKPOINTS / f"step_{begin}")
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
for step in range(begin + 1, common.STEPS + 1):
    generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
    loss = model(torch.randn(4, 8, generator=generator)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if common.to_save(step):
        weights, moments = get_state_dict(model, optimizer)
        dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=common.CHECKPOINTS / f"step_{step}")
    common.step_done(step)
common.result(loss=loss.item(), parameters=common.digest(model.parameters()))
dist.destroy_process_group()
