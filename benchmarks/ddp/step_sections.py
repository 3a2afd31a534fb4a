"""Sections of ddp.py that run trainers in turn: each takes a Setup and prints its tables."""

from figures import milliseconds, print_table, show_ratio
from link import RATE, slow_link
from trainers import LOOPBACK, Trainer, in_turn, started

FUSED_VIEW = ("--optimizer", "fused", "--bucket-view")
SHARED_MEMORY = ("--hook", "shared-memory")

PYTHON_DEFAULT = "Python, defaults"
PYTHON_BEST = "Python, best"


def show(steps, *references):
    """The cells of one trainer: times, and ratios to the references in the same rounds."""
    cells = [milliseconds(steps.median), milliseconds(steps.best)]
    for reference in references:
        cells.append(show_ratio(steps.medians, reference.medians))
    cells.append(show_ratio(steps.cpu, references[0].cpu))
    return cells


def show_ranks(world):
    return "1 rank" if world == 1 else f"{world} ranks"


def step(setup):
    """Step time of C++ and Python, with the defaults and with the best settings of each."""
    aims = {"mlp": "0.45, and 0.2 with shared memory", "gpt": "0.90", "cnn": "0.90", "embedding": "0.60"}
    for model in ("mlp", "cnn", "embedding") if setup.quick else aims:
        flags = setup.model_flags(model)
        trainers = [
            Trainer(PYTHON_DEFAULT, "Python", flags, setup.world),
            Trainer(PYTHON_BEST, "Python", (*flags, *FUSED_VIEW), setup.world),
            Trainer("C++, defaults", "C++", flags, setup.world),
            Trainer("C++, best on Gloo", "C++", (*flags, *FUSED_VIEW), setup.world),
            Trainer("C++, best", "C++", (*flags, *FUSED_VIEW, *SHARED_MEMORY), setup.world),
        ]
        with started(trainers, setup.programs, setup.folder) as ranks:
            steps = in_turn(ranks, setup.rounds, setup.steps(model))
        print_table(
            f"Step time: {model.upper()}, {show_ranks(setup.world)}",
            ["", "ms", "best ms", "to Python's defaults", "to Python's best", "CPU to Python's defaults"],
            [[name, *show(one, steps[PYTHON_DEFAULT], steps[PYTHON_BEST])] for name, one in steps.items()],
            [
                "Best: fused AdamW and gradients as views into buckets; in C++ also the all-reduce through shared "
                f"memory, but for the row on Gloo. Aim: C++ to Python, each with its defaults, at most {aims[model]}."
            ],
        )


def buckets(setup):
    """Bucket sizes, and the gain from overlapping communication with backward."""
    bucket_table(setup, LOOPBACK, "loopback")
    if setup.quick:
        return
    try:
        with slow_link() as place:
            bucket_table(setup, place, f"a link of {RATE}")
    except RuntimeError as error:
        print(f"### Buckets, a link of {RATE}\n\nSkipped: {error}\n", flush=True)


def bucket_table(setup, place, where):
    flags = (*setup.model_flags("gpt"), *FUSED_VIEW)
    caps = ("1",) if setup.quick else ("25", "5", "1", "0.5", "0.25")
    no_communication, default, one_bucket = "no communication", "default (1 MiB, then 25)", "one bucket: no overlap"
    measured = "measured"
    trainers = [
        Trainer(no_communication, "C++", (*flags, "--sync", "none"), setup.world, trains_alike=False),
        Trainer(one_bucket, "C++", (*flags, "--bucket-cap-mb", "1000"), setup.world),
        Trainer(default, "C++", flags, setup.world),
        *[Trainer(f"{cap} MiB", "C++", (*flags, "--bucket-cap-mb", cap), setup.world) for cap in caps],
        Trainer(measured, "C++", (*flags, "--measure-bucket-cap"), setup.world),
    ]
    if not setup.quick:
        trainers.append(Trainer("default, Python", "Python", flags))
        trainers.append(Trainer("0.5 MiB, Python", "Python", (*flags, "--bucket-cap-mb", "0.5")))
    with started(trainers, setup.programs, setup.folder, place) as ranks:
        steps = in_turn(ranks, setup.rounds, setup.steps("gpt"))
        chosen = ranks[measured].ask("cap")[0]["mb"]
    floor, whole = steps[no_communication].median, steps[one_bucket].median

    def hidden(one):
        return f"{(whole - one.median) / (whole - floor):.0%}" if whole > floor else "-"

    print_table(
        f"Buckets: GPT, {show_ranks(setup.world)} over {where}",
        ["", "ms", "best ms", "to default", "hidden", "CPU to default"],
        [
            [name, *show(one, steps[default])[:3], hidden(one), show(one, steps[default])[-1]]
            for name, one in steps.items()
        ],
        [
            "Fused AdamW and gradients as views. Hidden: of the time that communication adds where nothing overlaps "
            "(one bucket, reduced after backward), the share that is gone. Measured: measure_bucket_cap chose "
            f"{chosen:.2f} MiB."
        ],
    )


def hook(setup):
    """The all-reduce through shared memory compared with Gloo."""
    sizes = [("mlp", 2)] if setup.quick else [("mlp", 2), ("gpt", 2), ("gpt", 4)]
    rows = []
    for model, world in sizes:
        flags = (*setup.model_flags(model), *FUSED_VIEW)
        trainers = [
            Trainer("Gloo", "C++", flags, world),
            Trainer("shared memory", "C++", (*flags, *SHARED_MEMORY), world),
            Trainer("no communication", "C++", (*flags, "--sync", "none"), world, trains_alike=False),
        ]
        with started(trainers, setup.programs, setup.folder) as ranks:
            steps = in_turn(ranks, setup.rounds, setup.steps(model))
        rows += [[f"{model.upper()}, {world} ranks", name, *show(one, steps["Gloo"])] for name, one in steps.items()]
    print_table("Gradients through shared memory", ["", "", "ms", "best ms", "to Gloo", "CPU to Gloo"], rows)


def zero(setup):
    """The optimizer's state sharded across the ranks (ZeRO-1) compared with AdamW on each rank."""
    large = ("--layers", "4", "--width", "512", "--batch", "1")
    sizes = [("GPT", (), "gpt"), ("GPT of 13 M parameters", large, "gpt"), ("MLP", (), "mlp")]
    rows = []
    for what, more, model in sizes[2:] if setup.quick else sizes:
        flags = (*setup.model_flags(model), *FUSED_VIEW, *more)
        whole, sharded, python = "AdamW", "ZeRO-1", "ZeRO-1 in Python"
        trainers = [
            Trainer(whole, "C++", flags),
            Trainer(sharded, "C++", (*flags, "--zero")),
            Trainer("AdamW in Python", "Python", flags),
            Trainer(python, "Python", (*flags, "--zero")),
        ]
        with started(trainers, setup.programs, setup.folder) as ranks:
            steps = in_turn(ranks, setup.rounds, setup.steps(model))
            state = {name: [answer["bytes"] for answer in one.ask("state")] for name, one in ranks.items()}
        for name, one in steps.items():
            kept = " ".join(f"{bytes:,}" for bytes in state[name])
            rows.append([what, name, *show(one, steps[whole], steps[python])[:-1], kept])
    print_table(
        "ZeRO-1: AdamW, 2 ranks",
        ["", "", "ms", "best ms", "to AdamW", "to Python's ZeRO-1", "bytes of state, rank 0 and 1"],
        rows,
        ["Fused AdamW and gradients as views."],
    )
