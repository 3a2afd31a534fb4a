"""Joins by env:// and sums the ranks with Gloo. Prints the sum, its interface, and the ports that its host listens on.

    gloo_worker.py [SECONDS]

SECONDS is how long it waits for the others.
"""

import datetime
import os
import sys

import torch
import torch.distributed as dist

LISTEN = "0A"


def listening_ports():
    ports = set()
    for name in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        with open(name) as table:
            for line in list(table)[1:]:
                fields = line.split()
                if fields[3] == LISTEN:
                    ports.add(int(fields[1].rsplit(":", 1)[1], 16))
    return sorted(ports)


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=seconds))
    total = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(total)
    group = dist.new_group()
    dist.all_reduce(total, group=group)
    ports = " ".join(map(str, listening_ports()))
    sys.stdout.write(f"sum={total.item():.0f} interface={os.environ.get('GLOO_SOCKET_IFNAME')} ports={ports} .\n")
    sys.stdout.flush()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
