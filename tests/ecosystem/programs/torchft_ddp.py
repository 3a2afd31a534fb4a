"""torchft: a replica group whose Manager reaches the launcher's store; the gradients go through its process group.

One replica group of one launcher, with its lighthouse in rank 0. Each rank averages over the replica groups (here one),
and the ranks of the group over Gloo, as in HSDP."""
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torchft import Manager, Optimizer, ProcessGroupGloo
from torchft.coordination import LighthouseServer

import common

dist.init_process_group("gloo")
address = [None]
if dist.get_rank() == 0:
    lighthouse = LighthouseServer(bind="[::]:0", min_replicas=1, join_timeout_ms=100)
    address = [lighthouse.address()]
dist.broadcast_object_list(address)
os.environ["TORCHFT_LIGHTHOUSE"] = address[0]

torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
adam = torch.optim.AdamW(model.parameters(), lr=0.01)


def save():
    return {"model": model.state_dict(), "optimizer": adam.state_dict()}


def load(state):
    model.load_state_dict(state["model"])
    adam.load_state_dict(state["optimizer"])


def file(step):
    return common.CHECKPOINTS / f"step_{step}.{dist.get_rank()}"


manager = Manager(
    pg=ProcessGroupGloo(timeout=timedelta(seconds=30)), min_replica_size=1, load_state_dict=load, state_dict=save,
    replica_id="group_0", timeout=timedelta(seconds=60), quorum_timeout=timedelta(seconds=120),
    connect_timeout=timedelta(seconds=60), use_async_quorum=False,
)  # fmt: skip
optimizer = Optimizer(manager, adam)
common.CHECKPOINTS.mkdir(exist_ok=True)
begin = common.latest()
if begin:
    saved = torch.load(file(begin), weights_only=False)
    load(saved["user"])
    manager.load_state_dict(saved["manager"])
while manager.current_step() < common.STEPS:
    step = manager.current_step() + 1
    generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
    optimizer.zero_grad()
    loss = model(torch.randn(4, 8, generator=generator)).square().mean()
    loss.backward()
    for parameter in model.parameters():
        manager.allreduce(parameter.grad).wait()
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
    optimizer.step()
    if common.to_save(step):
        torch.save({"user": save(), "manager": manager.state_dict()}, file(step))
        dist.barrier()
    common.step_done(step)
common.result(loss=loss.item(), parameters=common.digest(model.parameters()), batches=manager.batches_committed())
dist.barrier()
manager.shutdown()
dist.destroy_process_group()
