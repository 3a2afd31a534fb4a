"""An ordinary training script with one bug: HANG names a function of BUGS or MISMATCHES, which rank ODD (1) runs at
step AT (20), or of AFTER, which all ranks run there. Or it has none: functions of WORK are what rank 0 does there for
LONG seconds for good reasons, while the others wait for it; several may be given, separated by commas, for steps AT,
2 AT and so on. Nothing here knows of a launcher that watches. MODEL: ddp (default), fsdp (fully_shard) or hsdp (4
ranks); BACKEND: gloo (default) or nccl. Case `none` trains for STEPS steps; in case `slow` rank ODD sleeps before each
backward."""

import asyncio
import ctypes
import datetime
import fcntl
import multiprocessing
import os
import pdb
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader, Dataset

HANG, MODEL = os.environ.get("HANG", "none"), os.environ.get("MODEL", "ddp")
ODD, AT = int(os.environ.get("ODD", "1")), int(os.environ.get("AT", "20"))
STEPS, FOLDER = int(os.environ.get("STEPS", "1000000")), os.environ.get("FOLDER", "/tmp")
LONG, FOREVER = float(os.environ.get("LONG", "20")), 1e6
BACKEND = os.environ.get("BACKEND", "gloo")
DEVICE = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if BACKEND == "nccl" else torch.device("cpu")

step = 0
BUGS, MISMATCHES, AFTER, WORK = {}, {}, {}, {}


def its_turn():
    return step == AT and dist.get_rank() == ODD


def bug(function):
    """Runs before a step of the odd rank."""
    BUGS[function.__name__] = function
    return function


def mismatch(function):
    """Replaces the collective that averages the loss, on the odd rank."""
    MISMATCHES[function.__name__] = function
    return function


def after(function):
    """Runs after the step AT, on every rank."""
    AFTER[function.__name__] = function
    return function


def work(function):
    """Runs on rank 0 after a step, while the others wait; its argument is the time at which it ends."""
    WORK[function.__name__] = function
    return function


# ---- the odd rank never gets to its collective ----


@bug
def sleep():
    time.sleep(FOREVER)


@bug
def once():
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        time.sleep(FOREVER)


@bug
def stop():
    os.kill(os.getpid(), signal.SIGSTOP)


@bug
def locks():
    first, second, ready = threading.Lock(), threading.Lock(), threading.Event()

    def other():
        with second:
            ready.set()
            first.acquire()

    with first:
        threading.Thread(target=other, daemon=True).start()
        ready.wait()
        second.acquire()


@bug
def fifo():
    os.mkfifo(f"{FOLDER}/fifo")
    open(f"{FOLDER}/fifo").read()


@bug
def gil():
    started = threading.Event()

    def native():
        started.set()
        ctypes.PyDLL(None).sleep(int(FOREVER))

    threading.Thread(target=native, daemon=True).start()
    started.wait()
    time.sleep(0.2)


@bug
def spin():
    done = False
    while not done:
        pass


@bug
def poll():
    while not os.path.exists(f"{FOLDER}/never"):
        time.sleep(0.05)


@bug
def child():
    subprocess.run(["sleep", "1000000"], check=False)


@bug
def connection():
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    client.recv(1)


@bug
def store():
    dist.distributed_c10d._get_default_store().get("never")


@bug
def result():
    queue.Queue().get()


@bug
def file_lock():
    with open(f"{FOLDER}/lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with open(f"{FOLDER}/lock") as again:
            fcntl.flock(again, fcntl.LOCK_EX)


@bug
def pool():
    with multiprocessing.get_context("fork").Pool(1) as workers:
        workers.apply(time.sleep, [FOREVER])


@bug
def semaphore():
    multiprocessing.Semaphore(0).acquire()


@bug
def coroutine():
    async def wait():
        await asyncio.Event().wait()

    asyncio.run(wait())


@bug
def condition():
    never = threading.Condition()
    with never:
        never.wait()


@bug
def pipe():
    _, writing = os.pipe()
    os.write(writing, bytes(1 << 20))


@bug
def question():
    reading, _ = os.pipe()
    os.dup2(reading, 0)
    input("Continue? ")


@bug
def future():
    with ThreadPoolExecutor() as executor:
        executor.submit(time.sleep, FOREVER).result()


@bug
def output():
    subprocess.run(["sleep", "1000000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)


@bug
def killed_worker():  # its task is lost
    with multiprocessing.get_context("fork").Pool(1) as workers:
        workers.apply(os._exit, [1])


@bug
def dead_owner():
    context = multiprocessing.get_context("fork")
    lock = context.Lock()
    owner = context.Process(target=lock.acquire)
    owner.start()
    owner.join()
    lock.acquire()


@bug
def forked_lock():  # no thread of the child will release it
    lock = threading.Lock()
    with lock:
        child = os.fork()
        if child == 0:
            lock.acquire()
        os.waitpid(child, 0)


@bug
def unfinished_thread():
    threading.Thread(target=time.sleep, args=[FOREVER]).start()
    sys.exit(0)


@bug
def new_group():
    dist.new_group([0, 1])


@bug
def barrier():
    dist.barrier()


@bug
def leave():
    sys.exit(0)


@bug
def receive():
    dist.recv(torch.ones(1, device=DEVICE), src=0)


@bug
def frozen():  # a file system that does not answer, such as that of a dead NFS server
    with open(f"{FOLDER}/frozen/file", "w") as file:
        file.write("x")


# ---- it enters another collective than the others ----


@mismatch
def other(value):
    dist.broadcast(value, src=0)


@mismatch
def shape(value):
    dist.all_reduce(value.repeat(2))


@mismatch
def sizes(value):
    """Also in all later steps, if nothing checks sizes."""
    dist.all_reduce(value.repeat(2))


@mismatch
def gather(value):
    dist.all_gather_object([None] * dist.get_world_size(), value.item())


@mismatch
def own_group(value):
    dist.all_reduce(value, group=PAIR)


# ---- the ranks part later ----


@after
def save():
    """Rank 0 writes to an uploader that does not read, the others wait for it."""
    if dist.get_rank() == 0:
        _, writing = os.pipe()
        with os.fdopen(writing, "wb") as file:
            torch.save(torch.zeros(1 << 20), file)
    dist.barrier()


def pairs_all_reduce(groups):
    if dist.get_rank() in (0, 1):
        for group in groups:
            dist.all_reduce(torch.ones(1, device=DEVICE), group=group)


@after
def order():
    pairs_all_reduce(TWO if dist.get_rank() == 0 else reversed(TWO))


@after
def uneven():
    """The odd rank has fewer batches."""
    if dist.get_rank() == ODD:
        dist.barrier()
        sys.exit(0)


@after
def late():
    """A barrier that would name the odd rank, after its timeout."""
    if dist.get_rank() == ODD:
        time.sleep(FOREVER)
    dist.monitored_barrier()


@after
def ring():
    """Each rank receives before it sends."""
    rank, size, value = dist.get_rank(), dist.get_world_size(), torch.ones(1)
    dist.recv(value, src=(rank - 1) % size)
    dist.send(value, dst=(rank + 1) % size)


@after
def pipeline():
    """The last stage expects one microbatch more than the stage before it sends."""
    rank, last, value = dist.get_rank(), dist.get_world_size() - 1, torch.ones(1)
    for _ in range(2 if rank == last else 1):
        if rank > 0:
            dist.recv(value, src=rank - 1)
        if rank < last:
            dist.send(value, dst=rank + 1)


@after
def mesh():
    """Ranks of a tensor-parallel group wait for each other, and others of their data-parallel groups for them."""
    if dist.get_rank() == ODD:
        time.sleep(FOREVER)
    for dimension in ("tp", "dp"):
        dist.all_reduce(torch.ones(1), group=MESH[dimension].get_group())


# ---- rank 0 works, which takes long ----


@work
def evaluate(end):
    while time.time() < end:
        torch.randn(300, 300) @ torch.randn(300, 300)


@work
def saving(end):
    with open(f"{FOLDER}/checkpoint", "wb") as file:
        while time.time() < end:
            file.write(bytes(1 << 20))
            file.flush()
            os.fsync(file.fileno())
            time.sleep(0.3)


@work
def pool_of_processes(end):
    with multiprocessing.get_context("spawn").Pool(1) as workers:
        workers.apply(evaluate, [end])


@work
def program(end):
    loop = f"import time\nwhile time.time() < {end}: pass"
    subprocess.run([sys.executable, "-c", loop], check=True)


@work
def loading(end):
    class Slow(Data):
        def __getitem__(self, index):
            evaluate(end)
            return super().__getitem__(index)

    next(iter(DataLoader(Slow(), num_workers=2)))


@work
def download(end):
    with socket.create_server(("127.0.0.1", 0)) as server:
        if os.fork() == 0:
            with socket.create_connection(server.getsockname()) as connection:
                while time.time() < end:
                    connection.sendall(bytes(40_000))
                    time.sleep(0.1)
            os._exit(0)
        connection, _ = server.accept()
        while connection.recv(1 << 16):
            pass
        os.wait()


@work
def prompt(end):
    reading, writing = os.pipe()
    threading.Timer(end - time.time(), os.write, [writing, b"continue\n"]).start()
    with open(reading) as terminal:
        pdb.Pdb(stdin=terminal, stdout=sys.stdout, nosigint=True).set_trace()


@work
def debugged(_):
    gdb = ["gdb", "-iex", "set auto-solib-add off", "-p", str(os.getpid()), "-batch", "-ex", f"shell sleep {LONG}"]
    with subprocess.Popen(gdb, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        time.sleep(1)


class Data(Dataset):
    def __len__(self):
        return 1 << 24

    def __getitem__(self, index):
        if HANG == "loader" and dist.get_rank() == ODD and index >= 8 * AT:
            threading.Event().wait()
        return torch.randn(64)


class Echo(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        if HANG == "backward" and its_turn():
            threading.Event().wait()
        return gradient


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(64, 256), nn.Linear(256, 10)

    def forward(self, x):
        return self.last(Echo.apply(torch.relu(self.first(x))))


def wrap(net):
    if MODEL == "ddp":
        return nn.parallel.DistributedDataParallel(net)
    from torch.distributed.fsdp import fully_shard
    size = dist.get_world_size()
    mesh = init_device_mesh("cpu", (2, size // 2) if MODEL == "hsdp" else (1, size), mesh_dim_names=("dp", "fsdp"))
    for layer in (net.first, net.last, net):
        fully_shard(layer, mesh=mesh if MODEL == "hsdp" else mesh["fsdp"])
    return net


def train_step(model, optimizer, x):
    loss = model(x).square().mean()
    optimizer.zero_grad()
    if HANG == "slow" and dist.get_rank() == ODD:
        time.sleep(0.2)
    loss.backward()
    optimizer.step()
    value = loss.detach().reshape(1)
    if HANG in MISMATCHES and (its_turn() or (HANG == "sizes" and step > AT and dist.get_rank() == ODD)):
        MISMATCHES[HANG](value)
    else:
        dist.all_reduce(value)
    value.item()


def main():
    global step, PAIR, TWO, MESH
    if BACKEND == "nccl":
        torch.cuda.set_device(DEVICE)
    dist.init_process_group(BACKEND, timeout=datetime.timedelta(seconds=int(os.environ.get("TIMEOUT", "1800"))))
    torch.manual_seed(0)
    model = wrap(Net().to(DEVICE))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    # NCCL connects ranks in their first operation.
    if HANG == "own_group":
        PAIR = dist.new_group([0, 1])
        pairs_all_reduce([PAIR])
    if HANG == "order":
        TWO = [dist.new_group([0, 1]), dist.new_group([0, 1])]
        pairs_all_reduce(TWO)
    if HANG == "receive" and dist.get_rank() in (0, ODD):
        value = torch.ones(1, device=DEVICE)
        dist.send(value, dst=ODD) if dist.get_rank() == 0 else dist.recv(value, src=0)
    if HANG == "mesh":
        MESH = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    tasks = {AT * number: name for number, name in enumerate(HANG.split(","), 1) if name in WORK}
    for x in DataLoader(Data(), batch_size=8, num_workers=1 if HANG == "loader" else 0):
        if its_turn() and HANG in BUGS:
            BUGS[HANG]()
        train_step(model, optimizer, x.to(DEVICE))
        if dist.get_rank() == 0 and step % 10 == 0:
            print(f"step {step}", flush=True)
        if step == AT and HANG in AFTER:
            AFTER[HANG]()
        if step in tasks:
            if dist.get_rank() == 0:
                WORK[tasks[step]](time.time() + LONG)
            dist.barrier()
        step += 1
        if step == STEPS:
            break
        time.sleep(0.02)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
