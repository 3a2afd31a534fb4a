"""Trainers for the tests of ddprun.elastic. They print their losses, and kill themselves at the points in KILL.

    trainer.py MODEL [EPOCHS] [CHECKPOINT]

Prints "rank R pid P step S loss L" for each step that it has made, "evaluation E ..." for each evaluation, and "end S
digest D" after the last step. DEVICE=cuda trains on GPUs. KILL=RANK:STEP:POINT,... lets the process of this rank end by
SIGKILL, once, when it is in that step at that point; a process without a state is in step "-". PAUSE is a time in
seconds for each step.
"""

import contextlib
import hashlib
import os
import random
import signal
import sys
import time

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import ddprun.elastic as elastic
from ddprun.elastic import groups, training

PLAN = [entry.split(":") for entry in os.environ.get("KILL", "").split(",") if entry]
PAUSE = float(os.environ.get("PAUSE", "0"))
DEVICE = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if os.environ.get("DEVICE") == "cuda" else "cpu"
worker = None
state = None


def point(name):
    step = "-" if state is None or state.step is None else str(state.step)
    for i, (rank, its_step, its_name) in enumerate(PLAN):
        if (rank, its_step, its_name) == (os.environ["RANK"], step, name):
            try:
                os.close(os.open(os.path.join(os.environ["KILLED"], str(i)), os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue  # an earlier process has done it
            os.kill(os.getpid(), signal.SIGKILL)


def say(text):
    print(f"rank {worker.rank} pid {os.getpid()} {text}\n", end="", flush=True)


def announce(owner, method, before=None, after=None):
    """Lets a method pass points."""
    original = getattr(owner, method)

    def call(self, *args, **kwargs):
        if before is not None:
            point(before)
        result = original(self, *args, **kwargs)
        if after is not None:
            point(after)
        return result

    setattr(owner, method, call)


announce(groups.Group, "checked", after="reduce")  # the collective is under way
announce(training.Worker, "_join", before="join", after="joined")
announce(training.Worker, "_transfer", before="transfer", after="transferred")
announce(training.Worker, "_save", before="save")


class Points:
    """Points within a step, by hooks."""

    def __init__(self, model, optimizer):
        model.register_forward_pre_hook(lambda *_: point("forward"))
        next(model.parameters()).register_hook(lambda _: point("backward"))
        optimizer.register_step_pre_hook(lambda *_: point("update"))
        optimizer.register_step_post_hook(lambda *_: point("updated"))


class Vectors(Dataset):
    """Inputs with noise from all three generators, and targets."""

    def __init__(self, size, features):
        self.size, self.features = size, features

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        x = torch.sin(torch.arange(self.features) * (i + 1.0)) + 0.01 * torch.randn(self.features)
        x[0] += random.random() * 0.1
        x[1] += float(numpy.random.rand()) * 0.1
        return x, x.sum().reshape(1)


def loader(dataset, batch, shuffle=True, workers=0):
    sampler = DistributedSampler(dataset, worker.world_size, worker.rank, shuffle=shuffle)
    return DataLoader(dataset, batch_size=batch, sampler=sampler, num_workers=workers, persistent_workers=workers > 0)


def log(step, loss):
    """At the end of a step, which no other rank can undo any more."""
    say(f"step {step.number} loss {loss.item()!r}")
    if PAUSE:
        time.sleep(PAUSE)


def mlp(epochs):
    """AdamW with a schedule and clipping. Buckets are small, so that there are several."""
    global state
    net = nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1)).to(DEVICE)
    model = worker.ddp(net, bucket_cap_mb=0.1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.003)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.003, total_steps=100000)
    state = worker.state(model=net, optimizer=optimizer, scheduler=scheduler)
    Points(net, optimizer)
    batches = loader(Vectors(24 * worker.world_size, 256), 3)
    for _ in worker.epochs(epochs):
        for step, (x, y) in worker.steps(batches):
            with step:
                loss = functional.mse_loss(model(x.to(DEVICE)), y.to(DEVICE))
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                log(step, loss)
            point("committed")
        point("epoch")


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 4, dropout=0.1, batch_first=True)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x):
        mask = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), 1)
        y = self.norms[0](x)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.feed(self.norms[1](x))


class Gpt(nn.Module):
    def __init__(self, words=97, width=64, length=32):
        super().__init__()
        self.embedding, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        return self.head(self.blocks(self.embedding(tokens) + self.places(torch.arange(tokens.shape[1]))))


class Tokens(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, i):
        tokens = (torch.arange(33) * (i + 3) + torch.randint(2, (33,))) % 97
        return tokens[:-1], tokens[1:]


def gpt(epochs):
    """Accumulation over two batches, dropout, bfloat16, and a loader with workers (WORKERS)."""
    global state
    net = Gpt()
    model = worker.ddp(net, bucket_cap_mb=0.1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.001)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 20))
    state = worker.state(model=net, optimizer=optimizer, scheduler=scheduler)
    Points(net, optimizer)
    batches = loader(Tokens(), 4, workers=int(os.environ.get("WORKERS", "0")))
    for _ in worker.epochs(epochs):
        for step, (x, y) in worker.steps(batches):
            update = step.batch % 2 == 1
            with step:
                with contextlib.nullcontext() if update else model.no_sync():
                    with torch.autocast("cpu", dtype=torch.bfloat16):
                        loss = functional.cross_entropy(model(x).flatten(0, 1), y.flatten()) / 2
                    loss.backward()
                if update:
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()
                    log(step, loss)
            point("committed")
        point("epoch")


def bn(epochs):
    """BatchNorm, Nesterov momentum, augmentation, a schedule by epochs, and evaluations by all ranks together."""
    global state
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
    )
    net = nn.Sequential(net, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1)).to(DEVICE)
    model = worker.ddp(net, bucket_cap_mb=0.0005)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.7)
    state = worker.state(model=net, optimizer=optimizer, scheduler=scheduler)
    Points(net, optimizer)
    batches = loader(Vectors(20 * worker.world_size, 64), 4)
    checks = loader(Vectors(8 * worker.world_size, 64), 4, shuffle=False)

    def evaluate():
        point("evaluate")
        net.eval()
        total = torch.zeros(1, device=DEVICE)
        with torch.no_grad():
            for x, y in checks:
                outputs = net(x.to(DEVICE).reshape(-1, 1, 8, 8))
                total += functional.mse_loss(outputs, y.to(DEVICE), reduction="sum")
                dist.all_reduce(total)
        net.train()
        return total.item()

    for epoch in worker.epochs(epochs):
        for step, (x, y) in worker.steps(batches):
            with step:
                x = x.reshape(-1, 1, 8, 8).flip(3) if random.random() < 0.5 else x.reshape(-1, 1, 8, 8)
                loss = functional.mse_loss(model(x.to(DEVICE)), y.to(DEVICE))
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                log(step, loss)
            point("committed")
        point("epoch")
        scheduler.step()
        say(f"evaluation {epoch} {worker.retry(evaluate)!r}")
        point("evaluated")


def scaler(epochs):
    """GradScaler, which skips steps as its scale grows too large."""
    global state
    net = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1)).to(DEVICE)
    model = worker.ddp(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)
    scale = torch.amp.GradScaler(torch.device(DEVICE).type, init_scale=2.0**120, growth_interval=3)
    state = worker.state(model=net, optimizer=optimizer, scaler=scale)
    Points(net, optimizer)
    batches = loader(Vectors(24 * worker.world_size, 256), 3)
    for _ in worker.epochs(epochs):
        for step, (x, y) in worker.steps(batches):
            with step:
                loss = functional.mse_loss(model(x.to(DEVICE)), y.to(DEVICE))
                scale.scale(loss).backward()
                scale.unscale_(optimizer)
                point("unscaled")
                mean = loss.detach().clone()
                dist.all_reduce(mean)
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                scale.step(optimizer)
                scale.update()
                optimizer.zero_grad()
                log(step, mean)
            point("committed")
        point("epoch")


def errors(epochs):
    """Misuses, whose errors are printed."""
    global state
    net, other = nn.Linear(4, 1), nn.Linear(4, 1)
    model = worker.ddp(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    unknown = torch.optim.SGD(other.parameters(), lr=0.01)
    state = worker.state(model=net, optimizer=optimizer)

    def misuse(function):
        try:
            function()
        except RuntimeError as error:
            say(f"{type(error).__name__} {error}")

    for _ in worker.epochs(epochs):
        for step, x in worker.steps([torch.ones(2, 4)] * 4):
            with step:
                model(x).sum().backward()
                misuse(unknown.step)
                optimizer.step()
                misuse(lambda: dist.all_reduce(torch.ones(1)))
            misuse(dist.barrier)
            misuse(optimizer.step)
            misuse(lambda: worker.retry(dist.barrier))


def unequal(epochs):
    """Rank 0 draws one batch more than the others."""
    global state
    net = nn.Linear(4, 1)
    model = worker.ddp(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    state = worker.state(model=net, optimizer=optimizer)
    groups._STALL = groups._STALL_INTERVAL = 0.5
    for _ in worker.epochs(epochs):
        for step, x in worker.steps([torch.ones(2, 4)] * (3 + (worker.rank == 0))):
            with step:
                model(x).sum().backward()
                optimizer.step()


def digest():
    """Checksum of everything that ranks have in common."""
    checksum = hashlib.sha256(repr((state.step, state.epoch)).encode())
    _, tensors = state.pack()
    for tensor in [*tensors, *state.buffers]:
        checksum.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    for name, value in state.objects.items():
        checksum.update(repr((name, value.state_dict())).encode())
    return checksum.hexdigest()[:16]


def main():
    global worker
    torch.set_num_threads(1)
    model, epochs = sys.argv[1], int(sys.argv[2])
    if DEVICE != "cpu":
        torch.cuda.set_device(DEVICE)
    worker = elastic.init(seed=1, checkpoint=sys.argv[3] if len(sys.argv) > 3 else None, save_every=5)
    torch.manual_seed(worker.rank)  # parameters are rank 0's
    {"mlp": mlp, "gpt": gpt, "bn": bn, "scaler": scaler, "errors": errors, "unequal": unequal}[model](epochs)
    say(f"end {state.step} digest {digest()}")


if __name__ == "__main__":
    main()
