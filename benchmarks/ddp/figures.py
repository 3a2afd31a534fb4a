"""Medians, quartiles and markdown tables."""

import statistics


def quartiles(values):
    """(p25, median, p75); of fewer than three values the median stands for all."""
    if len(values) < 3:
        middle = statistics.median(values)
        return middle, middle, middle
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def ratios(ours, theirs):
    """Ratios of the same round: a disturbance of the machine that outlasts a round affects both sides."""
    return [a / b for a, b in zip(ours, theirs)]


def show_ratio(ours, theirs):
    low, middle, high = quartiles(ratios(ours, theirs))
    return f"{low:.2f} **{middle:.2f}** {high:.2f}"


def milliseconds(seconds):
    return f"{seconds * 1e3:.2f}" if seconds < 0.1 else f"{seconds * 1e3:.0f}"


def print_table(title, head, rows, notes=()):
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(head), *rows]) for i in range(len(head))]
    print(f"### {title}\n")
    for row in [head, ["-" * width for width in widths], *rows]:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |")
    print()
    for note in notes:
        print(f"{note}\n", flush=True)
