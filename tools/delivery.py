"""Say what visits of dist/ transfer and cost: python -m tools.delivery [--price 0.08] [--request-price 0.75] [--docs]

A first visit loads the page, and its service worker whatever else works offline; models are not counted, since users
choose them. A return loads everything from the service worker and asks whether sw.js has changed. After a release of
Wisp that leaves third-party parts as they are, a return loads the files that hold Wisp's own code.
Prices are in US dollars: --price per GB (10^9 bytes), --request-price per million requests.
"""

import argparse
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.paths import DIST, ROOT

MILLION = 1_000_000
PRICE, REQUEST_PRICE = 0.08, 0.75
LIMIT = 10_000_000  # bytes of a first visit of a release
IDLE = re.compile(r"^assets/(mermaid|highlight-all|mcp)-[0-9a-f]{12}\.js$")  # app/ui/parts.js: FOR_ANSWERS
ASKED_AGAIN = ("index.html", "wisp.js")  # the page loads them, then its service worker asks whether they are current
OWN_BUNDLES = (
    "py|page|style|worker|downloads|compute|cpu-\\w+|bench|bench-style|chat-search|chat-import|monitor|monitor-style|quality|"
    "quality-style|signed-in"
)
OWN_CODE = re.compile(rf"^(wisp\.js|sw\.js|[\w-]+\.html|manifest\..*|assets/({OWN_BUNDLES})-[0-9a-f]{{12}}\.\w+)$")
SUFFIX = {"br": ".br", "gzip": ".gz", "identity": ""}  # Accept-Encoding -> the file that is sent


@dataclass(frozen=True)
class Visit:
    """Requests of one visit: path -> bytes of its body, and those that are answered with 304."""

    files: dict[str, int]
    unchanged: int

    @property
    def bytes(self) -> int:
        """Bytes of all bodies."""
        return sum(self.files.values())

    @property
    def requests(self) -> int:
        """Requests, whatever their answers."""
        return len(self.files) + self.unchanged


def precached(dist: Path = DIST) -> list[str]:
    """Return the files that the service worker of dist/ caches."""
    found = re.match(r"const __WISP_PRECACHE__ = (.*);\n", (dist / "sw.js").read_text(encoding="utf-8"))
    assert found
    files: list[str] = json.loads(found[1])["files"]
    return files


def sent_bytes(path: str, encoding: str = "br", dist: Path = DIST) -> int:
    """Return the length of a file as a host sends it to clients that accept the encoding."""
    packed = dist / (path + SUFFIX[encoding])
    return (packed if packed.exists() else dist / path).stat().st_size


def first_visit(encoding: str = "br", dist: Path = DIST) -> Visit:
    """A visit with empty caches, until it works offline."""
    files = [*precached(dist), "sw.js"]
    return Visit({path: sent_bytes(path, encoding, dist) for path in files}, len(ASKED_AGAIN))


def idle_part(encoding: str = "br", dist: Path = DIST) -> Visit:
    """What a first visit of more than half a minute fetches while it is idle, but on links that are metered."""
    files = [path.relative_to(dist).as_posix() for path in sorted(dist.glob("assets/*.js"))]
    return Visit({path: sent_bytes(path, encoding, dist) for path in files if IDLE.match(path)}, 0)


def return_visit() -> Visit:
    """A later visit of the same version."""
    return Visit({}, 1)


def visit_after_release(encoding: str = "br", dist: Path = DIST) -> Visit:
    """The first visit after a release that changed Wisp's own code alone; the cached parts stay."""
    files = [path for path in [*precached(dist), "sw.js"] if OWN_CODE.match(path)]
    stable = [path for path in precached(dist) if not path.startswith("assets/") and path not in files]
    return Visit({path: sent_bytes(path, encoding, dist) for path in files}, len(stable))


def cost(visit: Visit, price: float, request_price: float) -> float:
    """Return the dollars that a million visits cost."""
    return visit.bytes * MILLION / 1e9 * price + visit.requests * request_price


def report(price: float, request_price: float) -> str:
    """Return the tables as Markdown."""
    visits: list[tuple[str, Callable[[str], Visit]]] = [
        ("first visit", first_visit),
        ("while idle, after half a minute", idle_part),
        ("return", lambda _: return_visit()),
        ("return after a release", visit_after_release),
    ]
    rows = []
    for name, visit_of in visits:
        visit = visit_of("br")
        sizes = [f"{visit_of(encoding).bytes / 1e6:.2f}" for encoding in SUFFIX]
        total = f"{visit.bytes * MILLION / 1e12:,.2f}"
        rows.append((name, str(visit.requests), *sizes, total, f"{cost(visit, price, request_price):,.0f}"))
    head = ("visit", "requests", "Brotli, MB", "gzip, MB", "as they are, MB", "a million, TB", "a million, US dollars")
    return table(head, rows) + "\n" + table(("file", *(f"{name}, bytes" for name in SUFFIX)), _largest(first_visit()))


def _largest(visit: Visit) -> list[tuple[str, ...]]:
    """The largest files of a visit, and the sum of the others."""
    paths = sorted(visit.files, key=lambda path: visit.files[path], reverse=True)
    rows = [(plain_name(path), *(f"{sent_bytes(path, name):,}" for name in SUFFIX)) for path in paths[:12]]
    others = [f"{sum(sent_bytes(path, name) for path in paths[12:]):,}" for name in SUFFIX]
    return [*rows, (f"{len(paths) - 12} others", *others)]


def plain_name(path: str) -> str:
    """A file's name without its hash."""
    return re.sub(r"-[0-9a-f]{12}(?=[./])", "", path).removeprefix("assets/")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def write_into_docs() -> None:
    """Replace the tables of docs/deployment.md."""
    page = ROOT / "docs" / "deployment.md"
    before, _, rest = page.read_text(encoding="utf-8").partition("<!-- delivery -->")
    after = rest.partition("<!-- end -->")[2]
    tables = report(PRICE, REQUEST_PRICE)
    page.write_text(f"{before}<!-- delivery -->\n{tables}<!-- end -->{after}", encoding="utf-8")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--price", type=float, default=PRICE, help="US dollars per GB")
    parser.add_argument("--request-price", type=float, default=REQUEST_PRICE, help="US dollars per million")
    parser.add_argument("--docs", action="store_true", help="write the tables into docs/deployment.md")
    options = parser.parse_args()
    if options.docs:
        write_into_docs()
    print(report(options.price, options.request_price), end="")


if __name__ == "__main__":
    main()
