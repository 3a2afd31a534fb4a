"""Trains a small character-level GPT with DistributedDataParallel, and resumes after a restart.

On one machine with two workers, or on two machines:

    bin/ddprun --standalone --nproc-per-node=2 examples/python/train_gpt.py
    bin/ddprun --nnodes=2 --nproc-per-node=2 --rdzv-endpoint=node0:29400 --max-restarts=3 \
        examples/python/train_gpt.py --snapshot=/shared/gpt.pt

It does the same as examples/cpp/train_gpt.cc and prints the same losses; its snapshots are PyTorch's own. The script
does not depend on the launcher: ranks and addresses come from the environment (torchrun works as well). The text is
--text FILE, or the license texts that every Debian machine has. Rank 0 writes the snapshot; a restart loads it if rank
0 finds it, so with several machines it should be in a shared folder.
"""

import argparse
import math
import os
import pathlib
import socket
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, Subset
from torch.utils.data.distributed import DistributedSampler

import gpt_model


def say(text):
    """Prints one line with one write, so that lines of several workers never mix."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


# ---- data ----


class CharDataset(Dataset):
    """A text split into blocks; the target of each character is the next one."""

    def __init__(self, text, block_size):
        self.chars = sorted(set(text))
        self.block_size = block_size
        index = {c: i for i, c in enumerate(self.chars)}
        self.data = torch.tensor([index[c] for c in text], dtype=torch.long)

    def __len__(self):
        return (len(self.data) - 1) // self.block_size

    def __getitem__(self, i):
        block = self.data[i * self.block_size : (i + 1) * self.block_size + 1]
        return block[:-1], block[1:]


def read_text(path):
    if path:
        return pathlib.Path(path).read_bytes().decode("utf-8")
    licences = sorted(p for p in pathlib.Path("/usr/share/common-licenses").glob("*") if not p.is_symlink())
    if not licences:
        raise SystemExit("train_gpt.py: /usr/share/common-licenses does not exist: give a text with --text FILE")
    return "".join(p.read_bytes().decode("utf-8") for p in licences)


# ---- training ----


class Trainer:
    def __init__(self, args, device):
        self.args = args
        self.device = device
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.dataset = CharDataset(read_text(args.text), args.block_size)
        self.sampler = DistributedSampler(self.dataset, seed=args.seed, drop_last=True)
        self.batches_per_epoch = self.sampler.num_samples // args.batch
        if self.batches_per_epoch == 0:
            raise SystemExit("train_gpt.py: the text is too short for this --batch, --block-size and number of workers")
        config = gpt_model.Config(
            len(self.dataset.chars), args.block_size, args.n_layer, args.n_head, args.n_embd, args.dropout
        )
        model = gpt_model.GPT(config).to(device)
        self.model = DDP(model, device_ids=[device.index] if device.type == "cuda" else None)
        decay, no_decay = gpt_model.group_parameters(model)
        groups = [{"params": decay, "weight_decay": args.weight_decay}, {"params": no_decay, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95))
        # Progress: total optimizer steps, the epoch, and the samples of this epoch used by all ranks together.
        self.step = self.epoch = self.samples_in_epoch = 0
        self.load_snapshot()

    def load_snapshot(self):
        # Rank 0 reads and broadcasts, so that all ranks start at the same step, wherever they run.
        snapshot = None
        if self.rank == 0 and self.args.snapshot and os.path.exists(self.args.snapshot):
            snapshot = torch.load(self.args.snapshot, map_location="cpu", weights_only=True)
        box = [snapshot]
        dist.broadcast_object_list(box, src=0, device=self.device if self.device.type == "cuda" else None)
        snapshot = box[0]
        if snapshot is None:
            return
        if snapshot["chars"] != self.dataset.chars or snapshot["shape"] != self.shape():
            raise SystemExit("train_gpt.py: the snapshot is from another text or model: remove it, or use its settings")
        self.model.module.load_state_dict(snapshot["model"])
        self.optimizer.load_state_dict(snapshot["optimizer"])
        self.step, self.epoch = snapshot["step"], snapshot["epoch"]
        self.samples_in_epoch = snapshot["samples_in_epoch"]
        if self.rank == 0:
            say(f"resumed from the snapshot: step {self.step}, epoch {self.epoch}")

    def save_snapshot(self):
        """Atomic: a reader sees the old file until the new one is complete and on disk."""
        if self.rank != 0 or not self.args.snapshot:
            return
        partial = self.args.snapshot + ".partial"
        with open(partial, "wb") as file:
            torch.save(
                {
                    "model": self.model.module.state_dict(),
                    "optimizer": self.optimizer.state_dict(),
                    "step": self.step,
                    "epoch": self.epoch,
                    "samples_in_epoch": self.samples_in_epoch,
                    "chars": self.dataset.chars,
                    "shape": self.shape(),
                },
                file,
            )
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, self.args.snapshot)
        say(f"snapshot of step {self.step} saved")

    def shape(self):
        return [self.args.block_size, self.args.n_layer, self.args.n_head, self.args.n_embd]

    def batches(self):
        """The rest of this epoch. Every rank draws its own part of an order determined by seed and epoch."""
        self.sampler.set_epoch(self.epoch)
        done = self.samples_in_epoch // self.world
        rest = Subset(self.dataset, list(self.sampler)[done:])
        # A separate generator: otherwise the loader would draw from dropout's generator in every epoch.
        return DataLoader(rest, batch_size=self.args.batch, drop_last=True, generator=torch.Generator())

    def train(self):
        began, first = time.monotonic(), self.step
        while self.step < self.args.steps:
            for x, y in self.batches():
                loss = self.train_step(x.to(self.device), y.to(self.device))
                last = self.step == self.args.steps
                if self.step % self.args.log_every == 0 or self.step == 1 or last:
                    self.report(loss, (self.step - first) / (time.monotonic() - began))
                if self.step % self.args.snapshot_every == 0 or last:
                    self.save_snapshot()
                if last:
                    return
            self.epoch += 1
            self.samples_in_epoch = 0

    def train_step(self, x, y):
        # Warm up over the first steps, then decay along a cosine to a tenth.
        done = self.step / self.args.steps
        rate = min((self.step + 1) / 20, 0.55 + 0.45 * math.cos(math.pi * done))
        for group in self.optimizer.param_groups:
            group["lr"] = self.args.lr * rate
        loss = gpt_model.loss(self.model(x), y)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # DDP averages the gradients over all ranks meanwhile
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.step += 1
        self.samples_in_epoch += len(x) * self.world
        return loss.detach()

    def report(self, loss, steps_per_second):
        # Each rank has the loss of its own batch; the average is the loss of the global batch.
        average = loss.clone()
        dist.all_reduce(average)
        average = average.item() / self.world
        tokens = self.args.batch * self.args.block_size * self.world
        if self.rank == 0:
            say(
                f"step {self.step:4d}/{self.args.steps}  epoch {self.epoch}  rank 0's loss {loss.item():.3f}  "
                f"averaged over ranks {average:.3f}  "
                f"({steps_per_second:.1f} steps/s, {steps_per_second * tokens:.0f} tokens/s)"
            )

    def sample(self, length):
        """Rank 0 prints a sample of generated text."""
        if self.rank == 0 and length > 0:
            start = torch.zeros((1, 1), dtype=torch.long, device=self.device)
            numbers = self.model.module.eval().generate(start, length, temperature=0.7)[0].tolist()
            text = "".join(self.dataset.chars[i] for i in numbers)
            say(f"--- sample of generated text ---\n{text.strip()}\n--- end of sample ---")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", help="file to learn from (default: /usr/share/common-licenses)")
    parser.add_argument("--steps", type=int, default=400, help="total optimizer steps")
    parser.add_argument("--batch-size", "--batch", dest="batch", type=int, default=16, help="blocks per rank and step")
    parser.add_argument("--block-size", type=int, default=64, help="context length in characters")
    parser.add_argument("--n-layer", type=int, default=2)
    parser.add_argument("--n-head", type=int, default=4)
    parser.add_argument("--n-embd", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--snapshot", help="file to save to and to resume from")
    parser.add_argument("--snapshot-every", type=int, default=50, metavar="N", help="steps between snapshots")
    parser.add_argument("--log-every", type=int, default=20, metavar="N", help="steps between lines of output")
    parser.add_argument("--sample", type=int, default=300, metavar="N", help="characters to write at the end")
    return parser.parse_args()


def main():
    args = parse_args()
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
    try:
        restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        say(
            f"rank {dist.get_rank()} of {dist.get_world_size()}: pid {os.getpid()} on {socket.gethostname()}, "
            f"{dist.get_backend()}, restarts so far {restarts}"
        )
        torch.manual_seed(args.seed)
        trainer = Trainer(args, device)
        trainer.train()
        trainer.sample(args.sample)
    finally:
        dist.destroy_process_group()
    # Gloo's threads may hold a tensor for a moment after its collective is done. One that lets go while Python shuts
    # down aborts the process (seen with PyTorch 2.11 on a busy machine), so Python does not shut down. A failure never
    # comes here: it raises.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
