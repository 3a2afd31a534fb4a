"""Runs the command line of a fine-tuning package on a tiny model of random weights: real_command.py swift|llamafactory.

The model and its data are made here: no network. The result is that of the saved model.
"""
import hashlib
import json
import os
import pathlib
import subprocess
import sys

OUT = pathlib.Path(os.environ["ECOSYSTEM_OUT"])
PROGRAMS = pathlib.Path(__file__).resolve().parent
STEPS = "6"
COMMANDS = {
    "swift": (
        "swift sft --model {model} --model_type qwen2 --template qwen2_5 --dataset {out}/data.jsonl --tuner_type full"
        " --torch_dtype float32 --max_steps 6 --per_device_train_batch_size 2 --gradient_accumulation_steps 1"
        " --logging_steps 1 --output_dir {out}/saved --use_cpu true"
    ),
    "llamafactory": "llamafactory-cli train {out}/train.yaml",
}


def make_model(folder):
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    marks = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=marks, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(["what is two plus two the answer is four"] * 10, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=marks[2], pad_token=marks[0])
    fast.chat_template = (
        "{% for m in messages %}<|im_start|>{{m['role']}}\n{{m['content']}}<|im_end|>\n{% endfor %}"
    )
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(fast), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=256,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(folder)


def make_data():
    pairs = [(f"what is {i} plus two", f"the answer is {i + 2}") for i in range(64)]
    with open(OUT / "data.jsonl", "w") as file:
        for question, answer in pairs:
            messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
            file.write(json.dumps({"messages": messages}) + "\n")
    rows = [{"instruction": question, "input": "", "output": answer} for question, answer in pairs]
    (OUT / "tiny.json").write_text(json.dumps(rows))
    (OUT / "dataset_info.json").write_text(json.dumps({"tiny": {"file_name": "tiny.json"}}))
    (OUT / "train.yaml").write_text(
        f"model_name_or_path: {OUT}/model\nstage: sft\ndo_train: true\nfinetuning_type: full\ndataset: tiny\n"
        f"dataset_dir: {OUT}\ntemplate: qwen\ncutoff_len: 64\noutput_dir: {OUT}/saved\noverwrite_output_dir: true\n"
        f"per_device_train_batch_size: 2\ngradient_accumulation_steps: 1\nmax_steps: {STEPS}\nlogging_steps: 1\n"
        "report_to: none\nuse_cpu: true\nseed: 1\n"
    )


def main():
    if not (OUT / "model").exists():
        # A process of its own, so that the command's start is not faster than a user's.
        subprocess.run([sys.executable, __file__, "make"], check=True)
        (OUT / "began").write_text("")
    path = [str(PROGRAMS / "probe"), str(PROGRAMS), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(path), "NPROC_PER_NODE": "2", "FORCE_TORCHRUN": "1", "USE_HF": "1",
        "DISABLE_VERSION_CHECK": "1",
    }  # fmt: skip
    command = COMMANDS[sys.argv[1]].format(model=OUT / "model", out=OUT).split()
    code = subprocess.run(command, env=environment).returncode
    saved = sorted((OUT / "saved").rglob("model.safetensors"), key=os.path.getmtime)
    if saved:
        text = json.dumps({"model": hashlib.sha256(saved[-1].read_bytes()).hexdigest()})
        for rank in (0, 1):
            (OUT / f"result.{rank}").write_text(text)
    sys.exit(code)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make_model(OUT / "model")
        make_data()
    else:
        main()
