#!/usr/bin/env python3
"""Finds comments that are hard to read: prints file:line of each, and fails if there are any.

    scripts/words.py [FILE...]     # all files, or these; scripts/check runs it

- A declaration's comment begins with its subject or its verb ("True if it ended."), not with a word of FIRST, which
  only continues the declared name ("Of the node that left"). The same goes for comments behind code.
  Comments between the statements of a function are free to begin as they like.
- No comment and no page of docs uses one of PHRASES.
"""

import io
import pathlib
import re
import subprocess
import sys
import tokenize

ROOT = pathlib.Path(__file__).absolute().parent.parent
FIRST = re.compile(r"(?i:of|that|as|with|by|who|what|whether|those|other|another|whoever|nobody|somebody)\b(?!-)")
PHRASES = re.compile(r"(?i)\b(whoever|nobody|somebody|by himself|of before|goes by|goes on|so long(?! as)|"
                     r"(is|are) told|hears that|in vain|of no use|can't be had)\b".replace(" ", r"\s+"))
C_TOKENS = re.compile(r'R"(\w*)\((?s:.*?)\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*(?s:.*?)\*/')


def c_comments(text):
    for token in C_TOKENS.finditer(text):
        if token[0].startswith("/") and not token[0].endswith("=*/"):
            yield token.start(), token[0]


def python_comments(text):
    offsets = [0, *(match.end() for match in re.finditer("\n", text))]
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        docstring = token.type == tokenize.STRING and before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
        if docstring or token.type == tokenize.COMMENT:
            yield offsets[token.start[0] - 1] + token.start[1], token.string
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            before = token.type


def comments(path, text):
    """Yields the offset and the text of each comment; of Markdown, each line of prose."""
    if path.suffix in (".h", ".hpp", ".cc", ".c", ".proto"):
        return c_comments(text)
    if path.suffix in (".py", ".bzl") or path.name in ("BUILD", "WORKSPACE") or text.startswith("#!/usr/bin/env py"):
        return python_comments(text)
    if path.suffix == ".sh" or text.startswith("#!/usr/bin/env bash"):
        return ((match.start(1), match[1]) for match in re.finditer(r"(?m)(?:^|[ \t])(#+[ \t].*)$", text))
    if path.suffix == ".md":
        text = re.sub(r"(?ms)^ *```.*?^ *```|`[^`\n]*`", lambda code: re.sub("[^\n]", "-", code[0]), text)
        return ((match.start(), match[0]) for match in re.finditer(r"(?m)^(?!    |#).*$", text))
    return ()


def find_marks(path, text):
    """Yields (line, mark)."""
    prose, last = re.sub(r"[^\n]", " ", text), (-1, -1)  # the comments alone; line and column of the last one
    for offset, comment in comments(path, text):
        comment = re.sub(r"(?m)^[ /*#!\"|>-]+", lambda match: " " * len(match[0]), comment)
        prose = prose[:offset] + comment + prose[offset + len(comment):]
        number, column = text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset) - 1
        alone = not text[offset - column:offset].strip()
        continues, last = alone and last == (number - 1, column), (number + comment.count("\n"), column)
        declares = not alone or column == 0 or path.suffix in (".h", ".hpp", ".proto") or text.startswith('"""', offset)
        if path.suffix != ".md" and declares and not continues and (first := FIRST.match(comment.strip())):
            yield number, f"begins with {first[0]!r}"
    for phrase in PHRASES.finditer(prose):
        yield prose.count("\n", 0, phrase.start()) + 1, " ".join(phrase[0].split())


def main():
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *sys.argv[1:]]
    names = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    marks = [f"{name}:{number}: {mark}" for name in sorted(names) if (ROOT / name).is_file()
             for number, mark in find_marks(ROOT / name, (ROOT / name).read_text(errors="replace"))]
    print("".join(mark + "\n" for mark in marks) + f"{len(marks)} worn phrases")
    sys.exit(len(marks) > 0)


if __name__ == "__main__":
    main()
