"""One epoch of one rank with Python's DistributedSampler: `sampler.py SAMPLES` prints one line of JSON.

{"seconds": from set_epoch to the last index, "megabytes": peak memory added to the process, "sum": of indices}
"""

import json
import sys
import time

from torch.utils.data import DistributedSampler

WORLD, RANK = 8, 3


def peak_megabytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) / 1024


def main():
    samples = int(sys.argv[1])
    before = peak_megabytes()
    sampler = DistributedSampler(range(samples), num_replicas=WORLD, rank=RANK)
    began = time.perf_counter()
    sampler.set_epoch(1)
    total = sum(sampler)
    seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "megabytes": peak_megabytes() - before, "sum": total}))


if __name__ == "__main__":
    main()
