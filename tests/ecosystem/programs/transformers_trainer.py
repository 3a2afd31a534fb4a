"""The Transformers Trainer with a tiny GPT-2 of random weights, built from its configuration: no network."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import common


class Steps(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        common.step_done(state.global_step)


class Tokens(torch.utils.data.Dataset):
    def __init__(self):
        self.tokens = torch.randint(64, (2 * 4 * common.STEPS, 16), generator=torch.Generator().manual_seed(2))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


common.CHECKPOINTS.mkdir(exist_ok=True)
torch.manual_seed(1)
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=2, n_head=2))
arguments = TrainingArguments(
    output_dir=str(common.CHECKPOINTS), max_steps=common.STEPS, per_device_train_batch_size=4,
    use_cpu=not common.ON_GPU,
    save_steps=common.SAVE_EVERY, save_strategy="steps", logging_steps=1, report_to="none", disable_tqdm=True, seed=1,
)  # fmt: skip
trainer = Trainer(model=model, args=arguments, train_dataset=Tokens(), callbacks=[Steps()])
trainer.train(resume_from_checkpoint=get_last_checkpoint(str(common.CHECKPOINTS)))
losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
common.result(losses=[float(loss).hex() for loss in losses], parameters=common.digest(model.parameters()))
