"""Counterpart of step_trainer.cc with Python's DistributedDataParallel: the same flags, models, batches and answers.

One process per rank, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in the environment. It reads numbers of steps
from standard input, one per line, trains that many, and answers with one line of JSON:

    {"seconds": [per step], "cpu": seconds of all threads, "loss": of the last step}
"""

import argparse
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"))
import gpt_model  # noqa: E402

TOKENS = 200_000
CLASSES = 16
FEATURES = 64


def read_flags():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=["mlp", "gpt", "cnn", "embedding"], default="gpt")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--block", type=int, default=128)
    parser.add_argument("--vocab", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--optimizer", choices=["default", "fused"], default="default")
    parser.add_argument("--bucket-view", action="store_true")
    parser.add_argument("--static-graph", action="store_true")
    parser.add_argument("--batched-copy", action="store_true", help="PyTorch 2.15")
    parser.add_argument("--compile", action="store_true")
    return parser.parse_args()


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(FEATURES, 128), nn.Linear(128, 128), nn.Linear(128, 128)])
        self.head = nn.Linear(128, CLASSES)

    def forward(self, x):
        for layer in self.layers:
            x = F.relu(layer(x))
        return self.head(x)


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        channels = [1, 16, 32, 64]
        self.convolutions, self.norms = nn.ModuleList(), nn.ModuleList()
        for before, after in zip(channels, channels[1:]):
            self.convolutions.append(nn.Conv2d(before, after, 3, padding=1))
            self.norms.append(nn.BatchNorm2d(after))
        self.head = nn.Linear(64 * 4 * 4, CLASSES)

    def forward(self, x):
        image = F.interpolate(x.view(-1, 1, 8, 8), (32, 32))
        for convolution, norm in zip(self.convolutions, self.norms):
            image = F.max_pool2d(F.relu(norm(convolution(image))), 2)
        return self.head(image.flatten(1))


class Embedding(nn.Module):
    def __init__(self, vocab, width):
        super().__init__()
        self.table = nn.Embedding(vocab, width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        return self.head(self.table(x).mean(1))


class Batches:
    """Sequences of a random text with their next tokens: a function of step and rank."""

    def __init__(self, flags, rank, world):
        torch.manual_seed(7)
        self.text = torch.randint(0, flags.vocab, (TOKENS,))
        self.tokens = flags.model in ("gpt", "embedding")
        self.length = (flags.block if self.tokens else FEATURES) + 1
        self.batch, self.rank, self.world = flags.batch, rank, world
        self.within = torch.arange(self.length)
        self.samples = torch.arange(self.batch)

    def get(self, step):
        first = (step * self.world + self.rank) * self.batch
        starts = (self.samples + first) * 7919 % (TOKENS - self.length)
        rows = self.text[starts.unsqueeze(1) + self.within]
        if self.tokens:
            return rows[:, :-1], rows[:, 1:]
        return rows[:, :-1].to(torch.float32) / 128, rows[:, -1] % CLASSES


class Trainer:
    def __init__(self, flags):
        self.flags = flags
        torch.distributed.init_process_group("gloo")
        self.rank = torch.distributed.get_rank()
        self.batches = Batches(flags, self.rank, torch.distributed.get_world_size())
        torch.manual_seed(1)
        if flags.model == "gpt":
            config = gpt_model.Config(
                vocab_size=flags.vocab,
                block_size=flags.block,
                n_layer=flags.layers,
                n_head=flags.heads,
                n_embd=flags.width,
            )
            self.model = gpt_model.GPT(config)
        elif flags.model == "embedding":
            self.model = Embedding(flags.vocab, flags.width)
        else:
            self.model = Cnn() if flags.model == "cnn" else Mlp()
        batched = {"batched_grad_copy": True} if flags.batched_copy else {}
        self.ddp = nn.parallel.DistributedDataParallel(
            self.model, gradient_as_bucket_view=flags.bucket_view, static_graph=flags.static_graph, **batched
        )
        self.forward = torch.compile(self.ddp) if flags.compile else self.ddp
        fused = {"fused": True} if flags.optimizer == "fused" else {}
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, **fused)
        self.done = 0

    def loss(self, outputs, y):
        if self.flags.model == "gpt":
            return gpt_model.loss(outputs, y)
        return F.cross_entropy(outputs, y[:, -1] % CLASSES if self.batches.tokens else y)

    def step(self):
        x, y = self.batches.get(self.done)
        # With gradients as views, set_to_none would only make the reducer copy again.
        self.optimizer.zero_grad(set_to_none=not self.flags.bucket_view)
        loss = self.loss(self.forward(x), y)
        loss.backward()
        self.optimizer.step()
        self.done += 1
        return loss.item()

    def steps(self, count):
        seconds, loss, cpu = [], 0.0, time.process_time()
        for _ in range(count):
            began = time.perf_counter()
            loss = self.step()
            seconds.append(time.perf_counter() - began)
        return {"seconds": seconds, "cpu": time.process_time() - cpu, "loss": loss}


def main():
    flags = read_flags()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    trainer = Trainer(flags)
    for line in sys.stdin:
        print(json.dumps(trainer.steps(int(line))), flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
