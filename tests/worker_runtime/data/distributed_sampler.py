"""Prints Python's DistributedSampler over a grid of settings, for distributed_sampler_test.cc: one line each,

length num_replicas rank shuffle seed epoch drop_last : index index ...
"""

import itertools

from torch.utils.data.distributed import DistributedSampler

LENGTHS = [0, 1, 2, 3, 5, 7, 8, 9, 31, 64, 100, 257]
WORLDS = [(1, 0), (2, 0), (2, 1), (3, 1), (4, 3), (5, 4), (8, 0), (8, 7), (16, 13)]
SHUFFLES = [(False, 0, 0), (True, 0, 0), (True, 0, 3), (True, 1234567890123, 2), (True, -5, 1)]
LARGE = [(100003, 7, 6, True, 3, 11, drop_last) for drop_last in (False, True)]


def main():
    grid = [
        (length, replicas, rank, shuffle, seed, epoch, drop_last)
        for length, (replicas, rank), (shuffle, seed, epoch), drop_last in itertools.product(
            LENGTHS, WORLDS, SHUFFLES, (False, True)
        )
    ]
    for length, replicas, rank, shuffle, seed, epoch, drop_last in grid + LARGE:
        sampler = DistributedSampler(range(length), replicas, rank, shuffle, seed, drop_last)
        sampler.set_epoch(epoch)
        print(length, replicas, rank, int(shuffle), seed, epoch, int(drop_last), ":", *sampler)


main()
