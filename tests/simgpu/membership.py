"""Communicators of the simulated NCCL that are split, shrunk, grown, revoked and suspended, without PyTorch: each rank
is a thread with a GPU of its own. Prints "ok" at the end."""

import ctypes
from concurrent.futures import ThreadPoolExecutor

SUCCESS, INVALID_USAGE = 0, 5
FLOAT, SUM = 7, 0
cuda, nccl = ctypes.CDLL("libcudart.so.13"), ctypes.CDLL("libnccl.so.2")


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


def check(result, expected=SUCCESS):
    assert result == expected, f"result {result}, not {expected}"


def unique_id():
    made = UniqueId()
    check(nccl.ncclGetUniqueId(ctypes.byref(made)))
    return made


class Rank:
    """The GPU, the stream and the communicator of one rank."""

    def __init__(self, device):
        self.device, self.comm = device, ctypes.c_void_p()
        self.stream, self.data = ctypes.c_void_p(), ctypes.c_void_p()

    def begin(self):
        check(cuda.cudaSetDevice(self.device))
        if not self.stream:
            check(cuda.cudaStreamCreate(ctypes.byref(self.stream)))
            check(cuda.cudaMalloc(ctypes.byref(self.data), ctypes.c_size_t(4)))

    def start_sum(self):
        return nccl.ncclAllReduce(self.data, self.data, ctypes.c_size_t(1), FLOAT, SUM, self.comm, self.stream)

    def sum(self):
        """The sum of 1 from each rank of the communicator."""
        value = ctypes.c_float(1)
        check(cuda.cudaMemcpy(self.data, ctypes.byref(value), ctypes.c_size_t(4), 1))
        check(self.start_sum())
        check(cuda.cudaStreamSynchronize(self.stream))
        check(cuda.cudaMemcpy(ctypes.byref(value), self.data, ctypes.c_size_t(4), 2))
        return value.value

    def number(self):
        found = ctypes.c_int()
        check(nccl.ncclCommUserRank(self.comm, ctypes.byref(found)))
        return found.value

    def replace(self, function, *arguments, flags=()):
        """Continues with the communicator that function(comm, *arguments, &new, NULL, *flags) makes."""
        made = ctypes.c_void_p()
        check(function(self.comm, *arguments, ctypes.byref(made), None, *flags))
        self.comm = made


def on_all(ranks, function):
    """Calls function(rank, its index) in a thread for each; returns the results."""

    def run(index):
        ranks[index].begin()
        return function(ranks[index], index)

    with ThreadPoolExecutor(len(ranks)) as threads:
        return list(threads.map(run, range(len(ranks))))


def main():
    ranks, first = [Rank(device) for device in range(4)], unique_id()

    def create(rank, index):
        check(nccl.ncclCommInitRank(ctypes.byref(rank.comm), 4, first, index))
        return rank.sum()

    assert on_all(ranks, create) == [4, 4, 4, 4]

    # Ranks of a color, ordered by key.
    whole = [rank.comm for rank in ranks]
    on_all(ranks, lambda rank, index: rank.replace(nccl.ncclCommSplit, index % 2, -index))
    assert on_all(ranks, lambda rank, _: (rank.number(), rank.sum())) == [(1, 2), (1, 2), (0, 2), (0, 2)]
    for rank, comm in zip(ranks, whole):
        rank.comm = comm

    # A suspended communicator can't be used, a resumed one can.
    on_all(ranks, lambda rank, _: check(nccl.ncclCommSuspend(rank.comm, 1)))
    on_all(ranks, lambda rank, _: check(rank.start_sum(), INVALID_USAGE))
    on_all(ranks, lambda rank, _: check(nccl.ncclCommResume(rank.comm)))
    assert on_all(ranks, lambda rank, _: rank.sum()) == [4, 4, 4, 4]

    # Rank 1 does not enter: the others' operation ends when they revoke theirs, which then can only be shrunk or ended.
    others = [ranks[0], ranks[2], ranks[3]]
    on_all(others, lambda rank, _: check(rank.start_sum()))
    on_all(others, lambda rank, _: check(nccl.ncclCommRevoke(rank.comm, 0)))
    on_all(others, lambda rank, _: check(cuda.cudaStreamSynchronize(rank.stream)))
    on_all(others, lambda rank, _: check(rank.start_sum(), INVALID_USAGE))
    on_all(others, lambda rank, _: check(nccl.ncclCommFinalize(rank.comm), INVALID_USAGE))
    error = ctypes.c_int(-1)
    check(nccl.ncclCommGetAsyncError(others[0].comm, ctypes.byref(error)))
    assert error.value == SUCCESS
    excluded = (ctypes.c_int * 1)(1)
    on_all(others, lambda rank, _: rank.replace(nccl.ncclCommShrink, excluded, 1, flags=[0]))
    assert on_all(others, lambda rank, _: (rank.number(), rank.sum())) == [(0, 3), (1, 3), (2, 3)]

    # A rank joins them; rank 0 is the root.
    grown = UniqueId()
    check(nccl.ncclCommGetUniqueId(others[0].comm, ctypes.byref(grown)))
    newcomer = Rank(1)

    def grow(rank, _):
        known = rank in (newcomer, others[0])
        rank.replace(nccl.ncclCommGrow, 4, ctypes.byref(grown) if known else None, 3 if rank is newcomer else -1)
        return rank.number(), rank.sum()

    assert on_all(others + [newcomer], grow) == [(0, 4), (1, 4), (2, 4), (3, 4)]
    print("ok")


main()
