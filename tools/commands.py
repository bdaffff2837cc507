"""The commands of build.py: what each takes and what it starts."""

import argparse
import os
import subprocess
import sys

from tools.failure import Failure
from tools.paths import ROOT


def main(arguments: list[str]) -> int:
    """Run one command; returns the exit status."""
    try:
        if arguments[:1] == ["test"]:  # what comes after these two belongs to pytest and to bench
            return _test(arguments[1:])
        if arguments[:1] == ["bench"]:
            return _bench(arguments[1:])
        options = _parser().parse_args(arguments)
        status: int = options.run(options)
        return status
    except Failure as failure:
        print(f"build.py: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    import build

    parser = argparse.ArgumentParser(
        prog="build.py", description=build.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    serve = commands.add_parser("serve", help="build the page and serve it on this machine")
    serve.add_argument("--port", type=int, help="the port to serve on (default: the first free one from 8000 on)")
    serve.add_argument("--no-open", action="store_true", help="do not open a browser")
    serve.add_argument("--api", action="store_true", help="make the tab's engine an OpenAI-compatible server, too")
    serve.add_argument("--model", help="with --api: what a browser in the background loads")
    serve.set_defaults(run=_serve)
    commands.add_parser("build", help="make dist/").set_defaults(run=_build)
    commands.add_parser("test", help="run every test; takes pytest's arguments")
    commands.add_parser("bench", help="measure in a headless browser; bench --help says how")
    chat = commands.add_parser("chat", help="ask the page's model from the terminal")
    chat.add_argument("prompt")
    chat.add_argument(
        "--model", help="a catalog id, the address of a .gguf, or a .gguf file (default: the embedded one)"
    )
    chat.add_argument("--max-tokens", type=int, default=256)
    chat.add_argument("--temperature", type=float, default=0.0)
    chat.set_defaults(run=_chat)
    return parser


def _serve(options: argparse.Namespace) -> int:
    from tools import dist, serve

    if options.api:
        arguments = ["--no-open"] if options.no_open else []
        arguments += ["--port", str(options.port)] if options.port is not None else []
        return _in_environment(
            ["-m", "tools.background", *arguments, *(["--model", options.model] if options.model else [])]
        )
    serve.serve(dist.build(), options.port, open_browser=not options.no_open)
    return 0


def _build(_: argparse.Namespace) -> int:
    from tools import dist

    dist.build()
    return 0


def _test(arguments: list[str]) -> int:
    return _in_environment(["-m", "pytest", *arguments])


def _bench(arguments: list[str]) -> int:
    return _in_environment(["-m", "bench", *arguments])


def _chat(options: argparse.Namespace) -> int:
    arguments = [options.prompt, "--max-tokens", str(options.max_tokens), "--temperature", str(options.temperature)]
    return _in_environment(["-m", "tools.chat", *arguments, *(["--model", options.model] if options.model else [])])


def _in_environment(arguments: list[str]) -> int:
    """Run the environment's Python with a browser at hand and dist/ made; its output and status are this command's."""
    from tools import browser, dist
    from tools.environment import ensure_venv

    python = ensure_venv(dev=True)
    dist.build()
    env = {**os.environ, "WISP_BROWSER": browser.ensure_browser(), "PYTHONPATH": str(ROOT)}
    return subprocess.run([str(python), *arguments], cwd=ROOT, env=env, check=False).returncode
