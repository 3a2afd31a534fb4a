"""DeepSpeed ZeRO stage 2 with Gloo; DS_ACCELERATOR=cpu is in the environment."""
import deepspeed
import torch

import common

deepspeed.init_distributed("gloo")
torch.manual_seed(1)
module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
engine, *_ = deepspeed.initialize(
    model=module,
    optimizer=torch.optim.AdamW(module.parameters(), lr=0.01),
    config={
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": 2},
        "zero_allow_untested_optimizer": True,
        "steps_per_print": 1000,
    },
)
begin = common.latest()
if begin:
    engine.load_checkpoint(common.CHECKPOINTS, tag=f"step_{begin}")
for step in range(begin + 1, common.STEPS + 1):
    generator = torch.Generator().manual_seed(100 * step + common.RANK)
    loss = engine(torch.randn(4, 8, generator=generator)).square().mean()
    engine.backward(loss)
    engine.step()
    if common.to_save(step):
        engine.save_checkpoint(common.CHECKPOINTS, tag=f"step_{step}")
    common.step_done(step)
common.result(loss=loss.item(), parameters=common.digest(module.parameters()))
torch.distributed.destroy_process_group()
