#!/usr/bin/env python3
"""Finds worn phrases in comments and docs: prints file:line of each, and fails if there are any.

    scripts/words.py [FILE...]     # all files, or these; scripts/check runs it

A comment is a sentence with a subject and a verb. A fragment that continues the declared name ("Whether it has ended")
and the phrases in PHRASES are signs of a sentence to write anew; CONTRIBUTING.md has examples of better ones.
"""

import io
import pathlib
import re
import subprocess
import sys
import tokenize

ROOT = pathlib.Path(__file__).absolute().parent.parent
OPENERS = ["Of a", "Of an", "That are", "That is", "In which", "By which", "Whether", "What", "Whoever", "Nobody",
           "Somebody", "The same", "Those"]
PHRASES = ["whoever", "nobody", "somebody", "by himself", "of before", "goes by", "goes on", "so long", "is told",
           "are told", "hears that", "in vain", "of no use", "can't be had"]
MARKS = re.compile("|".join(
    [rf"(?P<o{i}>(?:^|(?<=[.!?] )|(?<=\n)){words}\b)" for i, words in enumerate(OPENERS)]
    + [rf"(?P<p{i}>(?i:\b{words}\b){'(?! as)' if words == 'so long' else ''})" for i, words in enumerate(PHRASES)]))
C_TOKENS = re.compile(r'R"(\w*)\((?s:.*?)\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*(?s:.*?)\*/')


def c_comments(text):
    for token in C_TOKENS.finditer(text):
        if token[0].startswith("/"):
            first = text.count("\n", 0, token.start()) + 1
            for number, line in enumerate(token[0].split("\n"), first):
                yield number, line.strip("/* ")


def python_comments(text):
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#! ")
        elif token.type == tokenize.STRING and before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            for number, line in enumerate(token.string.split("\n"), token.start[0]):
                yield number, line.strip('" ')
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            before = token.type


def shell_comments(text):
    for number, line in enumerate(text.split("\n"), 1):
        if comment := re.search(r"(?:^|\s)#+\s+(.*)", line):
            yield number, comment[1]


def prose(text):  # of Markdown, without code and headings
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        fenced ^= line.lstrip().startswith("```")
        if not fenced and not line.startswith(("    ", "#", "```")):
            yield number, re.sub(r"`[^`]*`", "CODE", line)


def comments(path, text):
    if path.suffix in (".h", ".hpp", ".cc", ".c", ".proto"):
        return c_comments(text)
    if path.suffix in (".py", ".bzl") or path.name in ("BUILD", "WORKSPACE") or text.startswith("#!/usr/bin/env py"):
        return python_comments(text)
    if path.suffix == ".sh" or text.startswith("#!/usr/bin/env bash"):
        return shell_comments(text)
    return prose(text) if path.suffix == ".md" else ()


def find_marks(path, text):
    """Yields (line, mark). Comments on consecutive lines are one text; an empty one or a list's dash begins another."""
    joined, starts, last = "", [], -1
    for number, line in comments(path, text):
        begins = number != last + 1 or not line.strip() or line.lstrip().startswith(("- ", "* ", "| "))
        joined += "\n" if begins else " "
        line = line.strip("-*| ")
        starts.append((len(joined), number))
        joined, last = joined + line, number
    for mark in MARKS.finditer(joined):
        kind, index = mark.lastgroup[0], int(mark.lastgroup[1:])
        number = [line for offset, line in starts if offset <= mark.start()][-1]
        yield number, OPENERS[index] + " ..." if kind == "o" else PHRASES[index]


def main():
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *sys.argv[1:]]
    names = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    marks = [f"{name}:{number}: {mark}" for name in sorted(names) if (ROOT / name).is_file()
             for number, mark in find_marks(ROOT / name, (ROOT / name).read_text(errors="replace"))]
    print("".join(mark + "\n" for mark in marks) + f"{len(marks)} worn phrases")
    sys.exit(len(marks) > 0)


if __name__ == "__main__":
    main()
