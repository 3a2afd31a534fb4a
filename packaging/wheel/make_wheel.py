"""Links the commands for older distributions and packs them into a wheel.

usage: make_wheel.py --parts DIR --out DIR [--target x86_64|aarch64] [--url URL]

DIR is the folder of the built target //packaging/wheel:wheel_parts. Needs the Python packages of requirements.txt in
the interpreter that runs it, and g++ with the distribution's static libraries. Prints the wheel's path. README.md
describes the linking and the contents of the wheel.

URL is where this version's source tree can be read: the links of README.md are made absolute with it, and it is a
project URL. Without it, the links become plain text.
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

GLIBC = "2.28"
# Libraries of glibc itself; all others are linked statically.
DYNAMIC = {"c", "m", "pthread", "dl", "rt", "resolv"}
COMPILERS = {"x86_64": "g++", "aarch64": "aarch64-linux-gnu-g++"}
# Packages that contribute headers only, without archives.
HEADER_ONLY = ["libcli11-dev", "nlohmann-json3-dev"]
# Packages with a version in their names, identified by a file.
HEADER_ONLY_FILES = ["/usr/include/boost/version.hpp"]
HERE = Path(__file__).absolute().parent
ROOT = HERE.parent.parent


class WheelError(Exception):
    pass


def zig(arguments, target):
    environment = dict(os.environ)
    for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"):
        environment.setdefault(name, os.path.join(sys.prefix, "zig-cache"))
    command = [sys.executable, "-m", "ziglang", "cc", "-target", f"{target}-linux-gnu.{GLIBC}", "-O2", "-s", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        hint = ""
        if "undefined symbol" in done.stderr:
            hint = f"\navoid functions that glibc {GLIBC} lacks, or add them to glibc_2_28.c"
        raise WheelError(f"could not link {arguments[-1]}:\n{done.stderr.strip()}{hint}")


def find_archive(name, target):
    """Returns the path of a static library. A path, because zig must not use the C library in the same folder."""
    file = f"lib{name}.a"
    found = subprocess.run([COMPILERS[target], f"-print-file-name={file}"], capture_output=True, text=True, check=True)
    path = found.stdout.strip()
    if path == file:
        raise WheelError(f"{COMPILERS[target]} finds no {file}: is its -dev package installed?")
    return os.path.realpath(path)


def link_programs(parts, out, target):
    """Links the programs and returns the archives used."""
    names = dict.fromkeys((parts / "programs_parts/libraries.txt").read_text().split())
    archives = [find_archive(name, target) for name in [*names, "stdc++"] if name not in DYNAMIC]
    zig(
        # The distribution's archives are position-independent, like its programs.
        ["-pie", "-Wl,-z,relro,-z,now", "-Wl,--gc-sections", str(HERE / "glibc_2_28.c")]
        + ["-Wl,--whole-archive", str(parts / "programs_parts/whole.a"), "-Wl,--no-whole-archive"]
        + ["-Wl,--start-group", str(parts / "programs_parts/on_demand.a"), *archives, "-Wl,--end-group"]
        # Replaces libgcc_eh, which needs glibc 2.35.
        + ["-lunwind", "-lm", "-lpthread", "-ldl", "-lresolv", "-o", str(out / "ddprun")],
        target,
    )
    zig(["-pie", str(HERE / "rendezvousd.c"), "-o", str(out / "rendezvousd")], target)
    zig(["-pie", '-DCOMMAND="ddprunctl"', str(HERE / "rendezvousd.c"), "-o", str(out / "ddprunctl")], target)
    return archives


def link_preloaded(parts, out, target):
    """Links and returns the libraries that the launcher preloads into workers."""
    libraries = []
    for name in ("crash", "ports"):
        folder = parts / f"{name}_parts"
        library = out / f"libddprun_{name}.so"
        on_demand = [str(path) for path in [folder / "on_demand.a"] if path.exists()]
        zig(
            ["-shared", "-Wl,--whole-archive", str(folder / "whole.a"), "-Wl,--no-whole-archive", *on_demand]
            + ["-lpthread", "-ldl", "-o", str(library)],
            target,
        )
        libraries.append(library)
    return libraries


def put_licences(archives, folder):
    """Copies the copyright notices of the packages that own the archives."""
    search = ["dpkg", "-S", *archives, *HEADER_ONLY_FILES]
    owners = subprocess.run(search, capture_output=True, text=True, check=True).stdout
    packages = {line.split(":")[0] for line in owners.splitlines()}
    for package in sorted(packages | set(HEADER_ONLY)):
        notice = Path("/usr/share/doc") / package / "copyright"
        if not notice.is_file():
            raise WheelError(f"{notice} is missing: the wheel must hold the licences of what is linked into it")
        (folder / package).write_text(shorten(notice.read_text()))


def shorten(notice):
    """Returns a notice in Debian's format without its lists of files, if these are most of it: Boost's has 2 MB. All
    copyrights and licences remain."""
    if len(notice) < 100_000:
        return notice
    stanzas = re.split(r"\n\s*\n", notice.strip())
    without_files = (re.sub(r"\AFiles:.*?\n(?=\S)", "", stanza, flags=re.S) for stanza in stanzas)
    return "\n\n".join(dict.fromkeys(without_files)) + "\n"


def describe(url):
    """Returns README.md with links that work outside of the source tree."""

    def link(match):
        image, text, target = match.groups()
        if "://" in target or target.startswith("#"):
            return match[0]
        if not url:
            return "" if image else text
        return f"{image}[{text}]({url}/{target}{'?raw=true' if image else ''})"

    lines, is_code = [], False
    for line in (ROOT / "README.md").read_text().split("\n"):
        is_code ^= line.startswith("```")
        plain = is_code or line.startswith("    ")
        lines.append(line if plain else re.sub(r"(!?)\[([^]]*)\]\(([^)]*)\)", link, line))
    return "\n".join(lines)


def write_metadata(folder, version, tag, url):
    licences = sorted("licenses/" + path.name for path in (folder / "licenses").iterdir())
    lines = [
        "Metadata-Version: 2.4",
        "Name: ddprun",
        f"Version: {version}",
        "Summary: Launches distributed PyTorch training like torchrun and keeps it running when something fails",
        "License-Expression: BSD-3-Clause",
        *("License-File: " + path.removeprefix("licenses/") for path in licences),
        "Requires-Python: >=3.9",
        "Classifier: Operating System :: POSIX :: Linux",
        "Classifier: Programming Language :: C++",
        "Classifier: Programming Language :: Python :: 3",
        "Classifier: Typing :: Typed",
        *([f"Project-URL: Source, {url}", f"Project-URL: Documentation, {url}/docs/README.md"] if url else []),
        *([f"Project-URL: Changelog, {url}/CHANGELOG.md"] if url else []),
        "Description-Content-Type: text/markdown",
        "",
        describe(url),
    ]
    (folder / "METADATA").write_text("\n".join(lines))
    (folder / "WHEEL").write_text(
        f"Wheel-Version: 1.0\nGenerator: ddprun make_wheel\nRoot-Is-Purelib: false\nTag: {tag}\n"
    )


def make_man_pages(linked, folder):
    """Only where the programs run: a page is what its program prints for --help."""
    for name in ("ddprun", "rendezvousd", "ddprunctl"):
        script = [sys.executable, str(ROOT / "packaging/man/make_man.py"), str(linked / name)]
        done = subprocess.run(script, capture_output=True, text=True)
        if done.returncode != 0:
            raise WheelError(f"could not make {name}'s man page:\n{done.stderr.strip()}")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.1").write_text(done.stdout)


def read_version(header):
    return re.search(r'kVersion\[\] = "(.*)"', header.read_text()).group(1)


def copy(source, target, mode):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def make_wheel(parts, out, target, work, url):
    version = read_version(ROOT / "base/version.h")
    linked, tree = work / "linked", work / "tree"
    linked.mkdir()
    archives = link_programs(parts, linked, target)
    libraries = link_preloaded(parts, linked, target)

    data, info = tree / f"ddprun-{version}.data", tree / f"ddprun-{version}.dist-info"
    copy(linked / "ddprun", data / "scripts/ddprun", 0o755)
    copy(linked / "rendezvousd", data / "scripts/rendezvousd", 0o755)
    copy(linked / "ddprunctl", data / "scripts/ddprunctl", 0o755)
    # The launcher looks for the libraries beside itself and in ../lib.
    for library in libraries:
        copy(library, data / "data/lib" / library.name, 0o755)
    if platform.machine() == target:
        make_man_pages(linked, data / "data/share/man/man1")
    for source in sorted((HERE / "ddprun").rglob("*")):
        if source.suffix in (".py", ".typed") or source.parent.name == "bin":
            copy(source, tree / source.relative_to(HERE), 0o644 if source.suffix else 0o755)
    copy(ROOT / "LICENSE", info / "licenses/LICENSE", 0o644)
    put_licences(archives, info / "licenses")
    write_metadata(info, version, f"py3-none-manylinux_{GLIBC.replace('.', '_')}_{target}", url)
    for path in tree.rglob("*"):
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)

    out.mkdir(parents=True, exist_ok=True)
    # Reproducible: identical files give an identical wheel.
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "315532800"}
    subprocess.run(
        [sys.executable, "-m", "wheel", "pack", str(tree), "--dest-dir", str(out)],
        env=environment, check=True, stdout=subprocess.DEVNULL,
    )
    return out / f"ddprun-{version}-py3-none-manylinux_{GLIBC.replace('.', '_')}_{target}.whl"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--url", default="")
    parser.add_argument("--target", choices=sorted(COMPILERS), default="x86_64")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        try:
            url = arguments.url.rstrip("/")
            print(make_wheel(arguments.parts.absolute(), arguments.out, arguments.target, Path(work), url))
        except WheelError as error:
            sys.exit(f"make_wheel.py: {error}")


if __name__ == "__main__":
    main()
