"""`build.py faults`: run the campaign and print its table. Exit status 1 if a promise was broken."""

import argparse
import sys
import time

from playwright.sync_api import sync_playwright

from tests.faults.campaign import Campaign, Result, table
from tests.faults.lab import Lab
from tests.faults.table import FAULTS
from tools.paths import DIST


def main() -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(prog="build.py faults", description=__doc__)
    parser.add_argument("--minutes", type=float, default=0, help="go on for so long (default: every fault once)")
    parser.add_argument("--seed", type=int, default=None, help="of the order and the moments (default: the time)")
    parser.add_argument("--only", default="", help="faults whose name contains this text")
    options = parser.parse_args()
    seed = int(time.time()) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    faults = [fault for fault in FAULTS if options.only in fault.name]
    if not faults:
        parser.error(f"no fault is named {options.only!r}")
    with sync_playwright() as playwright:
        lab = Lab(playwright, DIST)
        try:
            results = Campaign(lab, seed).run(faults, options.minutes, report)
        finally:
            lab.close()
    print(table(results))
    broken = sum(bool(result.wrong) for result in results)
    print(f"{len(results)} faults, {broken} with broken promises; seed {seed}")
    return 1 if broken else 0


def report(result: Result) -> None:
    """Print what a fault did, at once."""
    state = "FAILED" if result.wrong else "ok" if result.struck else "ok, not struck"
    print(f"{state:<15}{result.fault.name} ({result.seconds:.0f} s, {result.failed} requests failed)", flush=True)
    for line in result.wrong:
        print(f"    {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
