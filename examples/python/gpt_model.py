"""A GPT with minGPT's architecture and module names; the counterpart of examples/cpp/gpt/model.h.

Both draw the same random numbers and evaluate in the same order, so that the same seed gives bitwise identical weights,
logits, and parameters after a training step in C++ and in Python.
"""

import dataclasses
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclasses.dataclass
class Config:
    vocab_size: int = 128
    block_size: int = 128  # context length in tokens
    n_layer: int = 4
    n_head: int = 4
    n_embd: int = 128  # a multiple of n_head
    dropout: float = 0.0


class CausalSelfAttention(nn.Module):
    """Every position attends to itself and to earlier ones."""

    def __init__(self, config):
        super().__init__()
        self.n_head = config.n_head
        self.dropout = config.dropout
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        self.resid_dropout = nn.Dropout(config.dropout)

    def forward(self, x):
        batch, time, width = x.shape
        q, k, v = (self.split_heads(part) for part in self.c_attn(x).split(width, dim=2))
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        joined = y.transpose(1, 2).contiguous().view(batch, time, width)
        return self.resid_dropout(self.c_proj(joined))

    def split_heads(self, x):
        return x.view(x.shape[0], x.shape[1], self.n_head, x.shape[2] // self.n_head).transpose(1, 2)


class Mlp(nn.Module):
    """Applies the same small network at every position."""

    def __init__(self, config):
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x):
        hidden = F.gelu(self.c_fc(x), approximate="tanh")  # minGPT's NewGELU
        return self.dropout(self.c_proj(hidden))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd)
        self.mlp = Mlp(config)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Transformer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.drop = nn.Dropout(config.dropout)
        self.h = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd)

    def forward(self, tokens):
        token = self.wte(tokens)
        position = self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        x = self.drop(token + position)
        for block in self.h:
            x = block(x)
        return self.ln_f(x)


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.transformer = Transformer(config)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.initialise()

    @torch.no_grad()
    def initialise(self):
        """GPT-2's: normal with 0.02, less for the projections back into the residual stream; biases 0."""
        residual = 0.02 / math.sqrt(2 * self.config.n_layer)
        for name, parameter in self.named_parameters():
            if name.endswith(".bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() > 1:
                nn.init.normal_(parameter, 0.0, residual if name.endswith("c_proj.weight") else 0.02)

    def forward(self, tokens):
        """tokens: int64 [batch, time]. Returns the logits, [batch, time, vocab_size]."""
        return self.lm_head(self.transformer(tokens))

    @torch.no_grad()
    def generate(self, tokens, count, temperature=1.0, top_k=0):
        """Continues tokens (int64 [batch, time], time >= 1) by `count` sampled tokens; top_k 0: from all tokens."""
        for _ in range(count):
            logits = self(tokens[:, -self.config.block_size :])[:, -1] / temperature
            if top_k > 0:
                best = logits.topk(min(top_k, self.config.vocab_size)).values
                logits = logits.masked_fill(logits < best[:, -1:], -math.inf)
            tokens = torch.cat([tokens, logits.softmax(-1).multinomial(1)], dim=1)
        return tokens


def loss(logits, targets):
    """Mean cross entropy of logits [batch, time, vocab_size] and the next tokens."""
    return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))


def group_parameters(model):
    """(decay, no_decay): weights of linear layers; biases, embeddings and the scales of layer norms."""
    decay, no_decay = [], []
    for name, parameter in model.named_parameters():
        embedding = name.endswith(("wte.weight", "wpe.weight"))
        (decay if parameter.dim() > 1 and not embedding else no_decay).append(parameter)
    return decay, no_decay
