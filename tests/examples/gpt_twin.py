"""Writes what the Python GPT computes, as bits, for gpt_twin_test.cc: gpt_twin.py FOLDER

Each record is a line "NAME BYTES" and then the bytes.
"""

import os
import sys

import torch

sys.path.insert(0, os.path.join(os.getcwd(), "examples", "python"))
import gpt_model

CONFIGS = [
    gpt_model.Config(),
    gpt_model.Config(vocab_size=65, block_size=32, n_layer=2, n_head=3, n_embd=48, dropout=0.1),
]


def write(file, name, tensor):
    data = tensor.detach().contiguous().numpy().tobytes()
    file.write(f"{name} {len(data)}\n".encode() + data)


def main(folder):
    torch.set_num_threads(1)
    for i, config in enumerate(CONFIGS):
        with open(os.path.join(folder, str(i)), "wb") as file:
            torch.manual_seed(17 + i)
            model = gpt_model.GPT(config)
            for name, parameter in model.named_parameters():
                write(file, name, parameter)
            tokens = torch.arange(3 * (config.block_size + 1)).remainder(config.vocab_size).view(3, -1)
            logits = model(tokens[:, :-1])
            write(file, "logits", logits)
            loss = gpt_model.loss(logits, tokens[:, 1:])
            write(file, "loss", loss)
            loss.backward()
            for name, parameter in model.named_parameters():
                write(file, "gradient of " + name, parameter.grad)
            decay, no_decay = gpt_model.group_parameters(model)
            write(file, "groups", torch.tensor([len(decay), len(no_decay)]))
            model.eval()
            write(file, "generated", model.generate(tokens[:, :3], 40, temperature=0.9))
            write(file, "generated of the best 5", model.generate(tokens[:, :3], 40, top_k=5))


main(sys.argv[1])
