"""Trains all runs of a file with Python and writes what parity_worker.cc writes: twin.py SETTINGS OUTPUT_PREFIX PORT...

The n-th port is that of the world of n ranks. All ranks are forked from this process, which has imported torch once.
"""

import contextlib
import math
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


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(5, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.out = nn.Linear(32, 40)

    def forward(self, x):
        hidden = self.norm(self.conv(x.view(-1, 5, 4, 4))).relu()
        return self.out(F.max_pool2d(hidden, 2).flatten(1)).view(-1, 5, 8)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 16)
        self.hidden = nn.Linear(16, 16)
        self.tied = self.embedding.weight

    def forward(self, tokens):
        return F.linear(self.hidden(self.embedding(tokens)).relu(), self.tied)


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


def bits(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def cosine_with_warmup(warmup_steps, total_steps):
    def factor(step):
        if step < warmup_steps:
            return step / max(1, warmup_steps)
        progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
        return max(0.0, 0.5 * (1.0 + math.cos(math.pi * progress)))

    return factor


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
    # Renamed, because DistributedDataParallel refuses the original on a CPU.
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
        kinds |= {"cnn": Cnn, "tied": Tied}
        module = kinds[self.model]()
        fill_parameters(module)
        return module

    def loss(self, ddp, step, number):
        if self.model == "gpt":
            tokens, targets = token_batch(number, self.number("block", 16))
            return gpt_model.loss(ddp(tokens), targets)
        if self.model == "tied":
            tokens, targets = token_batch(number, 16)
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
        self.scheduler = self.scaler = None
        if self.number("lambda", 0) == 1:
            factor = cosine_with_warmup(2, self.number("steps", 6))
            self.scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        if "scaler" in self.settings:
            self.scaler = torch.amp.GradScaler(
                "cpu", init_scale=float(self.settings["scaler"]), growth_interval=self.number("growth", 2000)
            )
        torch.manual_seed(1000 + self.rank)  # dropout
        for step in range(self.number("steps", 6)):
            self.step(ddp, optimizer, step)

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
                    self.backward(self.forward(ddp, step, number))
            else:
                last = self.forward(ddp, step, number)
                self.backward(last)
        if "clip" in self.settings:
            if self.scaler:
                self.scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(ddp.module.parameters(), float(self.settings["clip"]))
        scale = ""
        if self.scaler:
            self.scaler.step(optimizer)
            self.scaler.update()
            scale = " %08x" % bits(self.scaler.get_scale())
        else:
            optimizer.step()
        if self.scheduler:
            self.scheduler.step()
        line = "%s %d %08x %08x%s\n" % (self.settings["name"], step, bits(last.item()), checksum(ddp.module), scale)
        self.out.write(line)

    def forward(self, ddp, step, number):
        dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16}
        autocast = contextlib.nullcontext()
        if "autocast" in self.settings:
            autocast = torch.autocast("cpu", dtype=dtypes[self.settings["autocast"]])
        with autocast:
            return self.loss(ddp, step, number)

    def backward(self, loss):
        (self.scaler.scale(loss) if self.scaler else loss).backward()


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
