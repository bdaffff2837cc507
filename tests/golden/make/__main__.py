"""Make goldens again, or check that they can be: python -m tests.golden.make NAME ... [--check]."""

import argparse
import multiprocessing
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

from tests.golden.make.cases import GOLDEN, Golden, all_cases, make_in_process
from tests.golden.make.compare import compare
from tests.golden.make.llama_cpp_api import PACKAGES


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.make", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a golden, preset, architecture or folder")
    parser.add_argument("--all", action="store_true", help="every golden")
    parser.add_argument("--list", action="store_true", help="list the goldens and stop")
    parser.add_argument("--check", action="store_true", help="make them in a temporary folder and compare")
    parser.add_argument("--out", type=Path, help="a folder other than tests/golden")
    parser.add_argument("--library", choices=PACKAGES, help="which package's llama.cpp; by default what is installed")
    arguments = parser.parse_args()
    chosen = choose(arguments.names, every=arguments.all or arguments.list)
    if arguments.list:
        print(*(golden.name for golden in chosen), sep="\n")
        return 0
    if not chosen:
        parser.error("name the goldens, or give --all")
    temporary = arguments.check and not arguments.out
    with tempfile.TemporaryDirectory() if temporary else nullcontext(arguments.out or GOLDEN) as folder:
        failed = [golden.name for golden in chosen if not make(golden, Path(folder), arguments)]
    print(f"{len(chosen) - len(failed)} of {len(chosen)} goldens", "agree" if arguments.check else "made")
    return 1 if failed else 0


def choose(names: list[str], *, every: bool) -> list[Golden]:
    """The goldens that the words name; a word that names none ends the program."""
    cases = all_cases()
    for name in names:
        if not any(case.matches(name) for case in cases):
            sys.exit(f"No golden is called {name}; see --list, and README.md for adding one.")
    return [case for case in cases if every or any(case.matches(name) for name in names)]


def make(golden: Golden, folder: Path, arguments: argparse.Namespace) -> bool:
    """Make one golden in a process of its own, since llama.cpp aborts the process on models it rejects."""
    process = multiprocessing.get_context("spawn").Process(
        target=make_in_process, args=(golden, folder, arguments.library)
    )
    process.start()
    process.join()
    if process.exitcode:
        print(f"{golden.name}: failed ({process.exitcode})", file=sys.stderr, flush=True)
        return False
    if not arguments.check:
        print(golden.name, flush=True)
        return True
    result = compare(golden, folder)
    print(result.row(), *result.wrong, flush=True)
    return result.agrees


if __name__ == "__main__":
    sys.exit(main())
