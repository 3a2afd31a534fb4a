#!/usr/bin/env python3
"""Makes a man page from what a command prints for --help.

    make_man.py COMMAND... > COMMAND.1      the command as called, with its arguments: make_man.py bin/ddprunctl

The flag tables are written once, in the programs, and the page can't differ from them. A command that lists
subcommands gets a section for each.
"""

import os
import re
import subprocess
import sys

SUMMARIES = {
    "ddprun": "start and supervise the workers of a distributed PyTorch job",
    "rendezvousd": "rendezvous server for ddprun",
    "ddprunctl": "show and control the jobs of a rendezvous server",
}
SEE_ALSO = {name: [other for other in SUMMARIES if other != name] for name in SUMMARIES}


def run(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return "\\&" + text if text.startswith(".") else text


def entries(lines):
    """Groups indented lines into (term, description): a term begins less far to the right than descriptions."""
    found = []
    for line in lines:
        term = re.match(r" {2,6}(\S.*?)(?: {2,}(.*))?$", line)
        if term and len(line) - len(line.lstrip()) <= 6:
            found.append([term[1], [term[2]] if term[2] else []])
        elif found:
            found[-1][1].append(line.strip())
    return [(term, " ".join(description)) for term, description in found]


def body(text, headings=True):
    """Yields the page's lines for all of a help text but its usage. `headings`: with the titles of groups."""
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        lines = [line for line in block.split("\n") if not line.startswith("Usage:")]
        if not lines:
            continue
        title = re.fullmatch(r"([A-Z][^.]*):", lines[0])
        if title:
            if headings:
                yield f'.SS "{escape(title[1])}"'
            for term, description in entries(lines[1:]):
                yield from (".TP", f".B {escape(term)}", escape(description))
            continue
        yield ".PP"
        for line in lines:
            example = line.startswith(" ")
            yield from (".nf", escape("    " + line.strip()), ".fi") if example else (escape(line),)


def page(command):
    name = os.path.basename(command)
    version = run(command, "--version").split()[-1]
    text = run(command, "--help")
    usage = re.search(r"^Usage: (.*)$", text, re.MULTILINE)[1]
    yield f'.TH {name.upper()} 1 "" "ddprun {version}" "User Commands"'
    yield from (".SH NAME", f"{name} \\- {SUMMARIES[name]}", ".SH SYNOPSIS", ".B " + escape(usage), ".SH DESCRIPTION")
    yield from body(text)
    subcommands = re.search(r"^Subcommands:\n((?: .*\n)+)", text, re.MULTILINE)
    if subcommands:
        closing = text.rstrip().split("\n")[-1]
        yield ".SH COMMANDS"
        for subcommand, _ in entries(subcommands[1].split("\n")):
            help_text = run(command, subcommand, "--help").replace(closing, "")
            yield f'.SS "{escape(re.search("^Usage: (.*)$", help_text, re.MULTILINE)[1])}"'
            yield from body(re.sub(r"\n  -h,--help .*", "", help_text), headings=False)
    yield ".SH SEE ALSO"
    yield ",\n".join(f".BR {other} (1)" for other in SEE_ALSO[name])


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print("\n".join(page(sys.argv[1])))


if __name__ == "__main__":
    main()
