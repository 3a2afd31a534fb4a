"""@record: the launcher's summary shows the exception of the rank that failed first."""
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

import common


@record
def main():
    dist.init_process_group("gloo")
    dist.barrier()
    common.step_done(1)
    common.result(ranks=dist.get_world_size())
    if dist.get_rank() == 1:
        raise ValueError("the recorded words")
    dist.barrier()


main()
