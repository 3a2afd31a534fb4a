"""Lightning Fabric with DDP, saved with fabric.save."""
import os

import torch
from lightning.fabric import Fabric, seed_everything

import common

fabric = Fabric(accelerator="gpu" if common.ON_GPU else "cpu", strategy="ddp", devices=common.WORLD_SIZE)
if "LT_CLI_USED" not in os.environ:  # `fabric run` has launched it
    fabric.launch()
seed_everything(1)
module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
model, optimizer = fabric.setup(module, torch.optim.AdamW(module.parameters(), lr=0.01))

begin = common.latest()
if begin:
    fabric.load(common.CHECKPOINTS / f"step_{begin}.ckpt", {"model": model, "optimizer": optimizer})
for step in range(begin + 1, common.STEPS + 1):
    generator = torch.Generator().manual_seed(100 * step + fabric.global_rank)
    loss = model(torch.randn(4, 8, generator=generator).to(fabric.device)).square().mean()
    optimizer.zero_grad()
    fabric.backward(loss)
    optimizer.step()
    if common.to_save(step):
        fabric.save(common.CHECKPOINTS / f"step_{step}.ckpt", {"model": model, "optimizer": optimizer})
    common.step_done(step)
common.result(loss=loss.item(), parameters=common.digest(model.parameters()))
