"""torchdata's StatefulDataLoader: its state is saved with the model's, so no sample is seen twice or left out."""
import torch
import torch.distributed as dist
from torch.utils.data import Dataset, DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

import common


class Numbers(Dataset):
    def __len__(self):
        return 2 * 4 * common.STEPS

    def __getitem__(self, index):
        return index, torch.full((8,), index / 10)


def file(step):
    return common.CHECKPOINTS / f"step_{step}.{dist.get_rank()}"


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    dataset = Numbers()
    sampler: DistributedSampler = StatefulDistributedSampler(dataset, shuffle=True, seed=3)
    loader = StatefulDataLoader(dataset, batch_size=4, sampler=sampler, num_workers=2)

    begin, seen = common.latest(), []
    if begin:
        saved = torch.load(file(begin), weights_only=False)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        seen = saved["seen"]
    common.CHECKPOINTS.mkdir(exist_ok=True)
    for step, (indices, batch) in enumerate(loader, begin + 1):
        seen += indices.tolist()
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if common.to_save(step):
            torch.save(
                {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "loader": loader.state_dict(),
                    "seen": seen,
                },
                file(step),
            )
            dist.barrier()
        common.step_done(step)
    common.result(loss=loss.item(), parameters=common.digest(model.parameters()), seen=seen)
    dist.destroy_process_group()
