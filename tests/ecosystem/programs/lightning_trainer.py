"""Lightning's Trainer with DDP and a ModelCheckpoint. Each step draws its own samples: Lightning does not resume at
the batch at which an epoch was interrupted."""
import lightning
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.utilities import rank_zero_only

import common


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
        self.loss = 0.0

    def training_step(self, batch, _):
        generator = torch.Generator().manual_seed(100 * self.global_step + self.global_rank)
        loss = self.layers(torch.randn(batch.shape, generator=generator).to(batch.device)).square().mean()
        self.log("loss", loss, sync_dist=True)
        self.loss = loss.item()
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


class Steps(Callback):
    def on_train_batch_end(self, trainer, *_):
        common.step_done(trainer.global_step)


# The rank as of the import, before the Trainer sets it.
imported_rank = rank_zero_only.rank
lightning.seed_everything(1)
saving = ModelCheckpoint(
    dirpath=common.CHECKPOINTS, filename="step_{step}", auto_insert_metric_name=False,
    every_n_train_steps=common.SAVE_EVERY, save_top_k=-1,
)  # fmt: skip
trainer = lightning.Trainer(
    accelerator="gpu" if common.ON_GPU else "cpu", strategy="ddp", devices=common.WORLD_SIZE, num_nodes=1,
    max_steps=common.STEPS, default_root_dir=common.OUT, callbacks=[saving, Steps()], enable_progress_bar=False,
    logger=False,
)  # fmt: skip
model = Model()
begin = common.latest()
trainer.fit(
    model,
    torch.utils.data.DataLoader(torch.zeros(2 * 4 * common.STEPS, 8), batch_size=4),
    ckpt_path=common.CHECKPOINTS / f"step_{begin}.ckpt" if begin else None,
)
common.result(loss=model.loss, parameters=common.digest(model.parameters()), imported_rank=imported_rank)
