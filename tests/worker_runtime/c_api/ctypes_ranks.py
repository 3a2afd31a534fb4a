"""Two processes without a launcher, which exchange rank 0's text through a pipe: ctypes_ranks.py LIBRARY."""

import ctypes
import os
import sys

FLOAT64, SUM, UNKNOWN = 1, 0, 2
BROADCAST = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)

receiving, sending = os.pipe()
child = os.fork()
rank = 0 if child else 1

library = ctypes.CDLL(sys.argv[1])
library.ddprun_last_error.restype = ctypes.c_char_p
library.ddprun_create_from_ranks.argtypes = [ctypes.c_int] * 4 + [
    BROADCAST, ctypes.c_void_p, ctypes.c_double, ctypes.POINTER(ctypes.c_void_p)]
library.ddprun_all_reduce.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int64, ctypes.c_int, ctypes.c_int]
for name in ("shutdown", "destroy"):
    getattr(library, "ddprun_" + name).argtypes = [ctypes.c_void_p]


@BROADCAST
def through_pipe(_, text, count):
    if rank == 0:
        os.write(sending, ctypes.string_at(text, count))
    else:
        ctypes.memmove(text, os.read(receiving, count), count)
    return 0


@BROADCAST
def fails(_context, _text, _count):
    return 7


def create(broadcast):
    worker = ctypes.c_void_p()
    return worker, library.ddprun_create_from_ranks(rank, 2, rank, 2, broadcast, None, 60, ctypes.byref(worker))


worker, code = create(fails)
assert code == UNKNOWN and worker.value is None, code
assert library.ddprun_last_error() == f"rank {rank}: the caller's broadcast returned 7".encode()

worker, code = create(through_pipe)
assert code == 0, library.ddprun_last_error()
value = ctypes.c_double(rank + 1)
assert library.ddprun_all_reduce(worker, ctypes.byref(value), 1, FLOAT64, SUM) == 0, library.ddprun_last_error()
assert value.value == 3, value.value
assert library.ddprun_shutdown(worker) == 0, library.ddprun_last_error()
library.ddprun_destroy(worker)
if child:
    assert os.waitpid(child, 0)[1] == 0
    print("both ranks passed")
