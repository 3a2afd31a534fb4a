"""A rank of a Gloo group of two, which enters two collectives. Before the third one, rank 1 reads a FIFO, and may hold
Python's lock, or have a child with a group. Prints "ready" before that."""

import ctypes
import multiprocessing
import sys
import threading

import torch
import torch.distributed as dist


def wait_for_data(path):
    with open(path) as file:
        file.read()


def hold_lock():
    print("ready", flush=True)
    ctypes.PyDLL(None).pause()


def child_group():
    ctypes.CDLL(None).prctl(1, 9)  # ends with its parent
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    dist.all_reduce(torch.ones(3))
    threading.Event().wait()


def main():
    what, fifo = sys.argv[1:]
    if what == "name":  # a name of the thread that no JSON text may have: the recorder throws
        ctypes.CDLL(None).prctl(15, b"\xff\xfe")
    dist.init_process_group("gloo")
    tensor = torch.ones(10, 4)
    for _ in range(2):
        dist.all_reduce(tensor)
    if dist.get_rank() == 1:
        if what == "lock":
            threading.Thread(target=hold_lock, daemon=True).start()
        if what == "spawn":
            multiprocessing.get_context("spawn").Process(target=child_group, daemon=True).start()
        print("ready", flush=True)
        wait_for_data(fifo)
    else:
        print("ready", flush=True)
    dist.all_reduce(tensor)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
