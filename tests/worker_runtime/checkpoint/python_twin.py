"""Counterpart of checkpoint_python_test: Python's safetensors reads files of C++, and writes files for C++.

    python_twin.py read FOLDER     checks the files of C++; prints "read N" if all are correct
    python_twin.py write FOLDER    writes files like those of C++
"""

import sys

import torch
from safetensors import safe_open
from safetensors.torch import load_file, load_model, save_file, save_model

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
}


class Net(torch.nn.Module):
    """SampleNet of sample_net.h."""

    def __init__(self):
        super().__init__()
        self.wte = torch.nn.Embedding(13, 8)
        self.blocks = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.1))
        self.head = self.wte.weight


def pattern(dtype):
    """3 x 5 values whose bytes count up by seven."""
    size = torch.empty(0, dtype=dtype).element_size()
    step = 0 if dtype == torch.bool else 7
    raw = ((torch.arange(15 * size) * step + 1) % 256).to(torch.uint8)
    return raw.view(dtype).view(3, 5)


def as_bytes(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def check(condition, what):
    if not condition:
        sys.exit(f"not as expected: {what}")


def read(folder):
    checked = 0
    tensors = load_file(f"{folder}/dtypes.safetensors")
    for name, dtype in DTYPES.items():
        check(tensors[name].dtype == dtype, f"dtype of {name}")
        check(torch.equal(as_bytes(tensors[name]), as_bytes(pattern(dtype))), f"values of {name}")
        checked += 1
    check(tensors["scalar"].shape == () and tensors["scalar"].item() == 2.5, "scalar")
    check(tensors["empty"].shape == (0, 3), "empty")
    check(torch.equal(tensors["transposed"], torch.arange(6.0).view(2, 3).t()), "transposed")

    # An untied model: plain load_file and load_state_dict.
    linear = torch.nn.Linear(3, 2)
    linear.load_state_dict(load_file(f"{folder}/linear.safetensors"), strict=True)
    check(torch.equal(linear.weight, torch.arange(6.0).view(2, 3) / 3), "linear")

    # A tied one, out of a whole checkpoint.
    net = Net()
    model_file = f"{folder}/step_00000012.safetensors"
    missing, unexpected = load_model(net, model_file, strict=True)
    check(not missing and not unexpected, "load_model")
    check(net.head is net.wte.weight, "tie")
    stored = load_file(model_file)
    check(set(stored) == set(net.state_dict()) - {"wte.weight"}, "names of the model")
    net.load_state_dict({**stored, "wte.weight": stored["head"]}, strict=True)
    with safe_open(model_file, "pt") as file:
        metadata = file.metadata()
    check(metadata["ddprun.step"] == "12" and metadata["ddprun.user.note"] == "grüße", "metadata")

    state = load_file(f"{folder}/{metadata['ddprun.state_file']}")
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.125)
    names = {id(parameter): name for name, parameter in reversed(list(net.named_parameters(remove_duplicate=False)))}
    names[id(net.head)] = "head"
    for parameter in net.parameters():
        prefix = f"optimizer.state.{names[id(parameter)]}."
        found = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
        check(set(found) == {"step", "exp_avg", "exp_avg_sq"}, prefix)
        check(found["step"].dtype == torch.float32 and found["step"].item() == 3, "step")
        optimizer.state[parameter] = found
    torch.set_rng_state(state["random.cpu"][0])
    ids = (torch.arange(6) * 6) % 13
    hidden = net.blocks(net.wte(ids))
    torch.nn.functional.cross_entropy(torch.nn.functional.linear(hidden, net.head), (ids + 1) % 13).backward()
    optimizer.step()
    save_model(net, f"{folder}/python_went_on.safetensors")
    print(f"read {checked}")


def write(folder):
    tensors = {name: pattern(dtype) for name, dtype in DTYPES.items()}
    tensors["scalar"] = torch.tensor(2.5)
    tensors["empty"] = torch.empty(0, 3)
    save_file(tensors, f"{folder}/python_dtypes.safetensors", metadata={"by": "python"})
    torch.manual_seed(5)
    net = Net()
    save_model(net, f"{folder}/python_model.safetensors")
    values = {f"value {i}": value.clone() for i, value in enumerate(net.blocks[0].weight.flatten()[:4])}
    save_file(values, f"{folder}/python_values.safetensors")
    print("written")


if __name__ == "__main__":
    {"read": read, "write": write}[sys.argv[1]](sys.argv[2])
