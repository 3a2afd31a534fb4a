"""Trains all runs of a file with Python and writes what worker.cc writes: twin.py SETTINGS OUTPUT_PREFIX PORT...

The n-th port is that of the world of n ranks. All ranks are forked from this process, which has imported torch once.
"""

import os
import struct
import sys
import zlib

import torch
import torch._dynamo  # DistributedDataParallel imports it, which takes as long as torch itself
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import gpt_model

VOCABULARY = 64


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(16, 24)
        self.fc2 = nn.Linear(24, 8)

    def forward(self, x):
        return self.fc2(self.fc1(x).relu())


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.add_module("in", nn.Linear(16, 12))
        self.left = nn.Linear(12, 12)
        self.right = nn.Linear(12, 12)
        self.never = nn.Linear(12, 12)
        self.out = nn.Linear(12, 8)

    def forward(self, x, branch):
        hidden = self.get_submodule("in")(x).relu()
        return self.out((self.left if branch == 0 else self.right)(hidden).relu())


class TwoOutputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.add_module("in", nn.Linear(16, 12))
        self.first = nn.Linear(12, 8)
        self.second = nn.Linear(12, 8)

    def forward(self, x):
        hidden = self.get_submodule("in")(x).relu()
        return self.first(hidden), self.second(hidden)


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.add_module("in", nn.Linear(16, 12))
        self.norm = nn.BatchNorm1d(5)
        self.out = nn.Linear(12, 8)

    def forward(self, x):
        return self.out(self.norm(self.get_submodule("in")(x)).relu())


def numbers(count, seed, modulus):
    index = torch.arange(count)
    return ((index + seed * 131) * 7919 + (index + seed) * (index + 3) * 31).remainder(modulus)


@torch.no_grad()
def fill_parameters(module):
    for seed, parameter in enumerate(module.parameters(), start=1):
        values = (numbers(parameter.numel(), seed, 2003) - 1001).to(torch.float32) / 4001
        parameter.copy_(values.view(parameter.shape))


def checksum(module):
    crc = 0
    for tensor in [*module.parameters(), *module.buffers()]:
        crc = zlib.crc32(tensor.detach().contiguous().numpy().tobytes(), crc)
    return crc


def float_batch(number):
    x = (numbers(64 * 5 * 16, 2 * number + 1, 997).to(torch.float32) / 499 - 1).view(64, 5, 16)
    y = (numbers(64 * 5 * 8, 2 * number + 2, 997).to(torch.float32) / 499 - 1).view(64, 5, 8)
    return x, y


def token_batch(number, length):
    tokens = numbers(4 * (length + 1), number, VOCABULARY).view(4, length + 1)
    return tokens[:, :-1], tokens[:, 1:]


def bits(loss):
    return struct.unpack("<I", struct.pack("<f", loss.item()))[0]


def optimizer_of(settings, module):
    lr = float(settings.get("lr", 0.01))
    kind = settings.get("opt", "sgd")
    parameters = list(module.parameters())
    if kind == "momentum":
        return torch.optim.SGD(parameters, lr=lr, momentum=0.9, nesterov=True, weight_decay=0.01)
    if kind == "adam":
        return torch.optim.Adam(parameters, lr=lr)
    if kind in ("adamw", "stock_adamw"):
        kernel = settings.get("kernel", "loop")
        arguments = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}[kernel]
        if settings.get("groups") == "1":
            decay, no_decay = gpt_model.group_parameters(module)
            parameters = [{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}]
        return torch.optim.AdamW(parameters, lr=lr, amsgrad="amsgrad" in settings, **arguments)
    return torch.optim.SGD(parameters, lr=lr)


def bf16_hook(group, bucket):
    # By another name: DistributedDataParallel refuses the original on a CPU.
    return default_hooks.bf16_compress_hook(group, bucket)


HOOKS = {
    "allreduce": default_hooks.allreduce_hook,
    "fp16": default_hooks.fp16_compress_hook,
    "bf16": bf16_hook,
}


class Run:
    def __init__(self, settings, rank, world_size, out):
        self.settings, self.rank, self.world_size, self.out = settings, rank, world_size, out
        self.model = settings.get("model", "gpt")

    def number(self, key, otherwise):
        return int(self.settings.get(key, otherwise))

    def build(self):
        if self.model == "gpt":
            torch.manual_seed(1 + self.rank)
            return gpt_model.GPT(
                gpt_model.Config(
                    vocab_size=VOCABULARY,
                    block_size=self.number("block", 16),
                    n_layer=self.number("layers", 2),
                    n_head=2,
                    n_embd=self.number("width", 32),
                    dropout=float(self.settings.get("dropout", 0)),
                )
            )
        kinds = {"mlp": Mlp, "branches": Branches, "two_outputs": TwoOutputs, "normed": Normed}
        module = kinds[self.model]()
        fill_parameters(module)
        return module

    def loss(self, ddp, step, number):
        if self.model == "gpt":
            tokens, targets = token_batch(number, self.number("block", 16))
            return gpt_model.loss(ddp(tokens), targets)
        x, y = float_batch(number)
        if self.model == "branches":
            branch = 0
            if self.settings.get("branch") == "alternate":
                branch = self.rank % 2 if step % 3 == 0 else step % 2
            return F.mse_loss(ddp(x, branch), y)
        if self.model == "two_outputs":
            return F.mse_loss(ddp(x)[step % 2], y)
        return F.mse_loss(ddp(x), y)

    def train(self):
        module = self.build()
        ddp = DistributedDataParallel(
            module,
            bucket_cap_mb=float(self.settings["cap"]) if "cap" in self.settings else None,
            gradient_as_bucket_view=self.number("view", 0) == 1,
            static_graph=self.number("static", 0) == 1,
            find_unused_parameters=self.number("find", 0) == 1,
        )
        if "hook" in self.settings:
            ddp.register_comm_hook(None, HOOKS[self.settings["hook"]])
        optimizer = optimizer_of(self.settings, module)
        torch.manual_seed(1000 + self.rank)  # dropout
        joins = self.number("join", 0) == 1
        steps = self.number("steps", 6) - (2 * self.rank if joins else 0)
        if not joins:
            for step in range(steps):
                self.step(ddp, optimizer, step)
            return
        with ddp.join(divide_by_initial_world_size=self.number("divide", 1) == 1):
            for step in range(steps):
                self.step(ddp, optimizer, step)
        self.out.write("%s joined %08x\n" % (self.settings["name"], checksum(module)))

    def step(self, ddp, optimizer, step):
        if self.number("sched", 0) == 1:
            for group in optimizer.param_groups:
                group["lr"] = float(self.settings.get("lr", 0.01)) * (step + 1) / 10
        optimizer.zero_grad(set_to_none=self.number("zero", 0) == 0)
        passes = self.number("accumulate", 1)
        for index in range(passes):
            number = (step * passes + index) * self.world_size + self.rank
            if index + 1 < passes:
                with ddp.no_sync():
                    self.loss(ddp, step, number).backward()
            else:
                last = self.loss(ddp, step, number)
                last.backward()
        if "clip" in self.settings:
            torch.nn.utils.clip_grad_norm_(ddp.module.parameters(), float(self.settings["clip"]))
        optimizer.step()
        self.out.write("%s %d %08x %08x\n" % (self.settings["name"], step, bits(last), checksum(ddp.module)))


def run_rank(all_settings, prefix, rank, world_size, port):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world_size)
    with open(f"{prefix}.{world_size}.{rank}", "w") as out:
        for settings in all_settings:
            if str(world_size) in settings["ws"].split(","):
                Run(settings, rank, world_size, out).train()
    dist.barrier()
    dist.destroy_process_group()


def main():
    path, prefix, *ports = sys.argv[1:]
    with open(path) as file:
        lines = [line.split() for line in file if line.strip() and not line.startswith("#")]
    all_settings = [dict(word.split("=", 1) for word in line) for line in lines]
    failed = False
    for world_size, port in enumerate(ports, start=1):
        children = []
        for rank in range(world_size):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    run_rank(all_settings, prefix, rank, world_size, port)
                    code = 0
                except BaseException as error:
                    print(f"rank {rank} of {world_size}: {error!r}", file=sys.stderr, flush=True)
                finally:
                    os._exit(code)
            children.append(child)
        failed |= any([os.waitpid(child, 0)[1] != 0 for child in children])
    sys.exit(1 if failed else 0)


main()
