"""The jobs of the kit's Python ranks: ranks.py JOB [ARGUMENT...]. Results are lines "KIT {JSON}" on stdout.

Ranks that share a device need another NCCL_HOSTID each (hostid.c).
"""

import datetime
import json
import os
import signal
import statistics
import sys
import time

import torch
import torch.distributed as dist

RANK = int(os.environ.get("RANK", "0"))
WORLD = int(os.environ.get("WORLD_SIZE", "1"))
RESTARTS = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def report(**values):
    """One line with one write, so that lines of several ranks never mix."""
    os.write(1, b"KIT " + json.dumps({"rank": RANK, **values}).encode() + b"\n")


def milliseconds(function, times=1):
    began = time.perf_counter()
    for _ in range(times):
        function()
    torch.cuda.synchronize()
    return round(1e3 * (time.perf_counter() - began) / times, 2)


def own_device():
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())


def use_device():
    torch.cuda.set_device(own_device())
    return own_device()


def store():
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    hosts = "KIT_OWN_STORE" in os.environ and RANK == 0
    return dist.TCPStore(*address, is_master=hosts, wait_for_workers=False)


def meet(at, name):
    at.set(f"met/{name}/{RANK}", "")
    at.wait([f"met/{name}/{rank}" for rank in range(WORLD)])


def end():
    """Without the destructors, which wait for each other in other ranks."""
    sys.stdout.flush()
    os._exit(0)


def facts():
    """The device, and the rate to pinned memory. The simulated device has no copy engine to measure."""
    device = use_device()
    megabytes = 64 if torch.cuda.get_device_name() == "Simulated GPU" else 1024
    free, total = torch.cuda.mem_get_info()
    values = {"device": torch.cuda.get_device_name(), "devices": torch.cuda.device_count(), "torch": torch.__version__}
    values["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    values["memory, MiB"], values["memory free, MiB"] = total >> 20, free >> 20
    on_device = torch.ones(megabytes << 20, dtype=torch.uint8, device=device)
    pageable = torch.empty(megabytes << 20, dtype=torch.uint8)
    began = time.perf_counter()
    pinned = torch.empty(megabytes << 20, dtype=torch.uint8, pin_memory=True)
    values["page-lock 1 GiB, ms"] = round(1024 / megabytes * 1e3 * (time.perf_counter() - began))
    gigabytes = megabytes / 1024
    for name, host in (("pinned", pinned), ("pageable", pageable)):
        host.copy_(on_device)
        values[f"device to {name}, GiB/s"] = round(gigabytes / milliseconds(lambda: host.copy_(on_device)) * 1e3, 1)
        values[f"{name} to device, GiB/s"] = round(gigabytes / milliseconds(lambda: on_device.copy_(host)) * 1e3, 1)
    report(**values)
    end()


def start():
    """Where a new process's time goes, each stage once, in order."""
    values = {}

    def stage(name, function):
        began = time.perf_counter()
        function()
        if name != "CUDA's start, ms":
            torch.cuda.synchronize()
        values[name] = round(1e3 * (time.perf_counter() - began), 1)

    stage("CUDA's start, ms", torch.cuda.init)
    device = own_device()
    stage("context, ms", lambda: torch.cuda.set_device(device))
    square = torch.ones(256, 256, device=device)
    stage("first matmul, ms", lambda: square @ square)
    qkv = torch.ones(2, 4, 64, 64, device=device)
    stage(
        "first attention, ms", lambda: torch.nn.functional.scaled_dot_product_attention(qkv, qkv, qkv, is_causal=True)
    )
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.LayerNorm(64), torch.nn.GELU()).to(device)
    stage("first backward, ms", lambda: model(torch.ones(8, 64, device=device)).sum().backward())
    stage("first fused AdamW, ms", torch.optim.AdamW(model.parameters(), fused=True).step)
    at, tensor, groups = store(), torch.ones(1000, device=device), {}

    def group(name):
        groups[name] = dist.ProcessGroupNCCL(dist.PrefixStore(name, at), RANK, WORLD)
        groups[name].allreduce([tensor]).wait()

    for name in ("first", "second", "third"):
        meet(at, name)
        stage(f"{name} communicator, ms", lambda name=name: group(name))
    meet(at, "end")
    stage("abort of an idle communicator, ms", groups["third"].abort)
    stage("shutdown of a communicator, ms", groups["second"].shutdown)
    report(**values)
    meet(at, "over")
    end()


def share():
    """Collectives of ranks that share a device, and how one ends whose sizes differ."""
    device = use_device()
    dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=25))
    tensor = torch.full((1000,), RANK + 1.0, device=device)
    values = {"communicator, ms": milliseconds(lambda: dist.all_reduce(tensor))}
    values["sum is right"] = tensor[999].item() == WORLD * (WORLD + 1) / 2
    for name, size, times in (("4 kB", 1000, 50), ("16 MB", 1 << 22, 5)):
        more = torch.ones(size, device=device)
        dist.all_reduce(more)
        torch.cuda.synchronize()
        values[f"all-reduce of {name}, ms"] = milliseconds(lambda more=more: dist.all_reduce(more), times)
    received = torch.zeros(4, device=device)
    if RANK == 0:
        dist.send(torch.arange(4.0, device=device), 1)
    elif RANK == 1:
        dist.recv(received, 0)
        values["message is right"] = received.tolist() == [0, 1, 2, 3]
    dist.broadcast(tensor, 0)
    dist.barrier()
    report(**values)
    # The last rank's tensor is larger.
    dist.all_reduce(torch.ones(3 if RANK < WORLD - 1 else 4, device=device))
    torch.cuda.synchronize()
    report(different_sizes="end without an error")
    end()


def restart():
    """DDP whose last rank kills itself after the first step; KIT_TIMES gets lines "TIME EVENT RESTARTS RANK"."""

    def record(event):
        with open(os.environ["KIT_TIMES"], "a") as file:
            file.write(f"{time.time()} {event} {RESTARTS} {RANK}\n")

    device = use_device()
    dist.init_process_group("nccl")
    layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    model = torch.nn.parallel.DistributedDataParallel(layers.to(device))
    optimizer = torch.optim.AdamW(model.parameters())
    x, y = torch.randn(16, 64).to(device), torch.randint(0, 10, (16,)).to(device)
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    torch.cuda.synchronize()
    record("step")
    dist.barrier()
    torch.cuda.synchronize()
    if RESTARTS == 0:
        if RANK == WORLD - 1:
            record("kill")
            os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()
    end()


def memory():
    """A worker that holds most of the device's memory is killed twice; each replacement takes as much at once."""
    use_device()
    free, total = torch.cuda.mem_get_info()
    took = torch.empty(int(total * 0.7), dtype=torch.uint8, device="cuda")
    took[:: 1 << 20].fill_(1)
    torch.cuda.synchronize()
    report(restarts=RESTARTS, free=free >> 20, total=total >> 20)
    if RESTARTS < 2:
        os.kill(os.getpid(), signal.SIGKILL)
    end()


def abort(keep):
    """The last rank dies within collectives; the others abort their group and make another one. With keep=0 they
    then drop the old one."""
    device, at = use_device(), store()

    def make(name, size):
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = datetime.timedelta(seconds=20)
        return dist.ProcessGroupNCCL(dist.PrefixStore(name, at), RANK, size, options)

    tensor, group = torch.ones(1 << 20, device=device), make("a", WORLD)
    for _ in range(10):
        group.allreduce([tensor]).wait()
    torch.cuda.synchronize()
    meet(at, "ready")
    if RANK == WORLD - 1:
        at.set("killed", "")
        os.kill(os.getpid(), signal.SIGKILL)
    at.wait(["killed"])
    work = group.allreduce([tensor])
    time.sleep(0.05)  # the kernel waits for the dead rank by then
    values, began = {}, time.perf_counter()

    def stage(name, function):
        since = time.perf_counter()
        function()
        values[name] = round(1e3 * (time.perf_counter() - since), 1)

    made = []

    def reduce_in_new_group():
        made.append(make("b", WORLD - 1))
        small = torch.ones(1000, device=device)
        made[0].allreduce([small]).wait()
        torch.cuda.synchronize()
        values["sum is right"] = small[0].item() == WORLD - 1

    stage("abort, ms", group.abort)
    stage("new group and its first all-reduce, ms", reduce_in_new_group)
    values["all, ms"] = round(1e3 * (time.perf_counter() - began), 1)
    report(**values)
    if not int(keep):
        began = time.perf_counter()
        del group, work
        report(**{"dropping the old group, ms": round(1e3 * (time.perf_counter() - began), 1)})
    end()


def reform(way):
    """The last rank is replaced several times, by an object that is as new as a process's would be. The others drop
    their nccl2 backend and make another one (way "new"), or abort it and reconfigure it."""
    from torch._C._distributed_c10d import ProcessGroupNCCL2, ReconfigureOptions

    device, at, keeps, last = use_device(), store(), way != "new", RANK == WORLD - 1

    def make(number):
        options = dist.ProcessGroupNCCL.Options()
        options._timeout, options.enable_reconfigure = datetime.timedelta(seconds=20), keeps
        own = at if keeps else dist.PrefixStore(str(number), at)
        return ProcessGroupNCCL2(own, RANK, WORLD, options, None if keeps else device)

    def connect(group, number):
        options = ReconfigureOptions()
        at.set(f"handle/{number}/{RANK}", group.get_reconfigure_handle())
        options.handles = [at.get(f"handle/{number}/{rank}").decode() for rank in range(WORLD)]
        options.uuid = number
        group.reconfigure(options).wait()

    tensor, group, dead, aborts, reforms = torch.ones(1000, device=device), None, [], [], []
    for number in range(8):
        meet(at, f"round {number}")
        dead.append(group)  # dropping it takes time that a dead process does not take
        began = time.perf_counter()
        if group is None or last or not keeps:
            group = make(number)
        if keeps:
            connect(group, number)
        tensor.fill_(1)
        group.allreduce([tensor]).wait()
        torch.cuda.synchronize()
        reforms.append(1e3 * (time.perf_counter() - began))
        right = tensor[0].item() == WORLD
        meet(at, f"dies {number}")
        if not last:
            group.allreduce([tensor])
            time.sleep(0.05)  # the kernel waits for the last rank by then
        began = time.perf_counter()
        group.abort()
        aborts.append(1e3 * (time.perf_counter() - began))
        if not right:
            break
    names = {"abort, ms": aborts, "re-formed, with the first all-reduce, ms": reforms}
    middle = {name: round(statistics.median(values[1:]), 1) for name, values in names.items()}
    report(**{"sum is right": right, **({} if last else middle)})
    end()


JOBS = {job.__name__: job for job in (facts, start, share, restart, memory, abort, reform)}

if __name__ == "__main__":
    JOBS[sys.argv[1]](*sys.argv[2:])
