"""A rank in Python that calls the C interface through ctypes: ctypes_program.py LIBRARY."""

import ctypes
import sys

FLOAT64, INT32, SUM, AVERAGE = 1, 6, 0, 1

library = ctypes.CDLL(sys.argv[1])
library.ddprun_last_error.restype = ctypes.c_char_p
library.ddprun_create.argtypes = [ctypes.c_char_p, ctypes.c_double, ctypes.POINTER(ctypes.c_void_p)]
array = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_int]
library.ddprun_all_reduce.argtypes = array
library.ddprun_broadcast.argtypes = array
library.ddprun_report_progress.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
for name in ("rank", "shutdown", "destroy"):
    getattr(library, "ddprun_" + name).argtypes = [ctypes.c_void_p]


def check(code):
    if code != 0:
        raise RuntimeError(f"code {code}: {library.ddprun_last_error().decode()}")


assert library.ddprun_api_version() == 1
worker = ctypes.c_void_p()
check(library.ddprun_create(None, 60, ctypes.byref(worker)))
rank = library.ddprun_rank(worker)

values = (ctypes.c_double * 2)(rank, 4)
check(library.ddprun_all_reduce(worker, values, 2, FLOAT64, AVERAGE))
assert list(values) == [0.5, 4], list(values)
number = ctypes.c_int32(rank + 5)
check(library.ddprun_broadcast(worker, ctypes.byref(number), 1, INT32, 1))
assert number.value == 6, number.value
assert library.ddprun_all_reduce(worker, None, 2, FLOAT64, SUM) == 3
assert library.ddprun_last_error() == b"data is NULL, with count=2"
check(library.ddprun_report_progress(worker, 3, -1))
check(library.ddprun_shutdown(worker))
library.ddprun_destroy(worker)
print(f"rank {rank} passed")
