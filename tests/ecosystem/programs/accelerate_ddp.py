"""Accelerate: prepare() of model, optimizer and data, save_state and load_state."""
import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.utils import set_seed

import common

accelerator = Accelerator(cpu=not common.ON_GPU)
set_seed(1)
samples = torch.randn(2 * 4 * common.STEPS, 8, generator=torch.Generator().manual_seed(2))
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(samples, batch_size=4, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

begin = common.latest()
if begin:
    accelerator.load_state(common.CHECKPOINTS / f"step_{begin}")
for step, batch in enumerate(skip_first_batches(loader, begin), begin + 1):
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
    if common.to_save(step):
        accelerator.save_state(common.CHECKPOINTS / f"step_{step}")
    common.step_done(step)
accelerator.print("printed by the main process")
common.result(loss=loss.item(), parameters=common.digest(model.parameters()))
accelerator.end_training()
