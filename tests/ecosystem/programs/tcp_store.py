"""Every operation of TCPStore against the store of MASTER_ADDR and MASTER_PORT, which the launcher serves."""
import os
from datetime import timedelta

import torch.distributed as dist

import common

tcp = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
store = dist.PrefixStore(f"test {common.ATTEMPT}", tcp)
mine, other = f"rank {common.RANK}", f"rank {1 - common.RANK}"
answers = []


def answer(name, value):
    answers.append(f"{name}: {value.decode() if isinstance(value, bytes) else value}")


def meet(place):
    store.add(place, 1)
    while store.add(place, 0) < 2:
        pass


store.set(mine, f"value of {mine}")
answer("get", store.get(other))
meet("after add")
answer("check", store.check([mine, "nothing"]))
answer("check both", store.check([mine, other]))
answer("compare_set of another value", store.compare_set(mine, "wrong", "new"))
answer("compare_set", store.compare_set(mine, f"value of {mine}", "new"))
answer("compare_set of a new key", store.compare_set(f"new {mine}", "", "first"))
meet("after compare_set")
store.append(mine, " and more")
answer("append", store.get(mine))
store.multi_set([f"a {mine}", f"b {mine}"], ["1", "2"])
answer("multi_get", [value.decode() for value in store.multi_get([f"a {mine}", f"b {mine}"])])
answer("delete_key", store.delete_key(f"a {mine}"))
answer("delete_key again", store.delete_key(f"a {mine}"))
try:
    store.wait(["nothing"], timedelta(milliseconds=200))
except dist.DistStoreError as error:
    answer("wait", type(error).__name__)
for name in ("queue_push", "queue_len", "queue_pop"):
    if not hasattr(tcp, name):
        continue
    arguments = (f"queue {mine}", "element") if name == "queue_push" else (f"queue {mine}",)
    answer(name, getattr(tcp, name)(*arguments))
meet("before the end")
common.step_done(1)
common.result(answers=answers)
