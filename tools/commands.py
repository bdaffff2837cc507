"""Wisp's one command. It sets up everything a fresh machine lacks; Python 3.11 and Node are all it assumes.

python3 build.py serve [--port N] [--api]         build the page and serve it on this machine
python3 build.py dev [--port N]                   serve, rebuild what changes and reload the page
python3 build.py build                            make dist/ for a release: a folder that any static host can serve
python3 build.py release                          make release/: wheel, npm package, archive of dist/, checksums
python3 build.py test [--fast] [pytest arguments] run every test; --fast: those of a minute
python3 build.py lint                             run the linters, type checkers and the WGSL validator
python3 build.py format                           format the sources
python3 build.py bench [--peer] [--json FILE]     measure; --help lists its options
python3 build.py faults [--minutes N] [--seed S]  live through faults of the GPU, the browser and the network
python3 build.py chat "PROMPT" [--tools SERVER]   ask the page's model from the terminal
python3 build.py eval FILE [--model M] [--base M] perplexity, KL divergence or multiple-choice questions
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from tools.failure import Failure, plain
from tools.paths import ROOT, cache_dir

# `test --fast`: the unit tests, lint and one page in a browser, without slow tests, in two processes.
FAST = ["tests/unit", "tests/e2e/test_smoke.py", "-m", "not slow", "-n", "2"]
INTERRUPTIBLE = ["-m", "tools.interruptible"]  # before the name of a module
END_S = 10.0  # for a command to end its browser and programs


def main(arguments: list[str]) -> int:
    """Run one command and return the exit status."""
    try:
        if arguments[:1] == ["test"]:  # these four parse the rest of their arguments
            return _test(arguments[1:])
        if arguments[:1] == ["eval"]:
            return _in_environment(["tools.evaluate", *arguments[1:]])
        if arguments[:1] == ["bench"]:
            return _with_npm(["bench", *arguments[1:]])
        if arguments[:1] == ["faults"]:
            return _with_npm(["tests.faults", *arguments[1:]])
        options = _parser().parse_args(arguments)
        status: int = options.run(options)
        return status
    except Failure as failure:
        print(f"build.py: {plain(str(failure))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="build.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    serve = commands.add_parser("serve", help="build the page and serve it on this machine")
    serve.add_argument("--port", type=int, help="the port to serve on (default: the first free one from 8000 on)")
    serve.add_argument("--no-open", action="store_true", help="do not open a browser")
    serve.add_argument("--api", action="store_true", help="serve the OpenAI API too, answered by a tab's engine")
    serve.add_argument("--model", help="with --api: the model that a headless browser loads while no tab answers")
    serve.add_argument(
        "--mcp",
        action="append",
        default=[],
        metavar="NAME=SERVER",
        help="with --api: an MCP server for the pages: its address, its command, or a file of them",
    )
    serve.set_defaults(run=_serve)
    dev = commands.add_parser("dev", help="serve, rebuild what changes and reload the page")
    dev.add_argument("--port", type=int, help="the port to serve on (default: the first free one from 8000 on)")
    dev.add_argument("--no-open", action="store_true", help="do not open a browser")
    dev.set_defaults(run=_dev)
    commands.add_parser("build", help="make dist/ for a release: best compression").set_defaults(run=_build)
    commands.add_parser("release", help="make release/: wheel, npm package, archive of dist/, checksums").set_defaults(
        run=_release
    )
    commands.add_parser("test", help="run every test, or with --fast those of a minute; takes pytest's arguments")
    commands.add_parser("lint", help="run every checker; status 1 if one fails").set_defaults(run=_lint)
    commands.add_parser("format", help="format the sources").set_defaults(run=_format)
    commands.add_parser("bench", help="measure in a headless browser; bench --help lists its options")
    commands.add_parser("faults", help="live through faults under load; faults --help lists its options")
    commands.add_parser("eval", help="measure a model's quality; eval --help lists its options")
    chat = commands.add_parser("chat", help="ask the page's model from the terminal")
    chat.add_argument("prompt")
    chat.add_argument(
        "--model", help="a catalog id, the address of a .gguf, or a .gguf file (default: the embedded one)"
    )
    chat.add_argument("--max-tokens", type=int, default=256)
    chat.add_argument("--temperature", type=float, default=0.0)
    chat.add_argument(
        "--tools",
        nargs="+",
        default=[],
        metavar="SERVER",
        help="MCP servers whose tools the model may call: NAME=ADDRESS, NAME=COMMAND or a JSON file of them",
    )
    chat.add_argument("--yes", action="store_true", help="run the tools without asking before each call")
    chat.set_defaults(run=_chat)
    return parser


def _serve(options: argparse.Namespace) -> int:
    from tools import dist, serve

    if options.api:
        arguments = [*_server_arguments(options), *(["--model", options.model] if options.model else [])]
        arguments += [argument for named in options.mcp for argument in ("--mcp", named)]
        return _in_environment(["tools.background", *arguments])
    serve.serve(dist.made(quiet=False), options.port, open_browser=not options.no_open)
    return 0


def _dev(options: argparse.Namespace) -> int:
    from tools.environment import ensure_venv

    python = ensure_venv(dev=True)
    return _run([str(python), *INTERRUPTIBLE, "tools.dev", *_server_arguments(options)], dict(os.environ))


def _server_arguments(options: argparse.Namespace) -> list[str]:
    port = ["--port", str(options.port)] if options.port is not None else []
    return [*port, *(["--no-open"] if options.no_open else [])]


def _build(_: argparse.Namespace) -> int:
    from tools import dist

    dist.build(release=True)
    return 0


def _release(_: argparse.Namespace) -> int:
    from tools import release

    release.build()
    return 0


def _test(arguments: list[str]) -> int:
    from tools import checks
    from tools.browser import ensure_browser
    from tools.environment import ensure_venv
    from tools.npm import ensure_node_modules

    with ThreadPoolExecutor() as pool:  # npm, pip and apt mostly wait for the network
        packages = [pool.submit(ensure, dev=True) for ensure in (ensure_node_modules, ensure_venv)]
        pool.submit(ensure_browser).result()
    for done in packages:
        done.result()
    if "--fast" in arguments:
        arguments = [*FAST, *(argument for argument in arguments if argument != "--fast")]
        os.environ[checks.QUICK] = "1"
    return _in_environment(["pytest", *arguments])


def _lint(_: argparse.Namespace) -> int:
    from tools import checks

    return checks.lint()


def _format(_: argparse.Namespace) -> int:
    from tools import checks

    return checks.format_sources()


def _with_npm(arguments: list[str]) -> int:
    from tools.npm import ensure_node_modules

    ensure_node_modules(dev=True)
    return _in_environment(arguments)


def _chat(options: argparse.Namespace) -> int:
    arguments = [options.prompt, "--max-tokens", str(options.max_tokens), "--temperature", str(options.temperature)]
    arguments += ["--model", options.model] if options.model else []
    arguments += ["--yes"] if options.yes else []
    arguments += ["--tools", *options.tools] if options.tools else []
    return _in_environment(["tools.chat", *arguments])


def _in_environment(arguments: list[str]) -> int:
    """Find a browser, make dist/ unless it is made, and run a module, the first argument; return its exit status."""
    from tools import browser, dist
    from tools.environment import ensure_venv

    python = ensure_venv(dev=True)
    found = browser.ensure_browser()
    dist.made(quiet=False)
    return _run([str(python), *INTERRUPTIBLE, *arguments], {**os.environ, "WISP_BROWSER": found, dist.MADE: "1"})


def _run(command: list[str], env: dict[str, str]) -> int:
    env = {**env, "PYTHONPATH": str(ROOT)}
    if env.pop("PYTHONDONTWRITEBYTECODE", ""):  # then each process would compile every module again
        env.setdefault("PYTHONPYCACHEPREFIX", str(cache_dir("bytecode")))
    before = signal.signal(signal.SIGTERM, _end)
    try:
        with subprocess.Popen(command, cwd=ROOT, env=env) as process:
            try:
                return process.wait()
            except SystemExit:
                process.terminate()
                raise
            finally:  # Ctrl-C has interrupted the command, too
                _await(process)
    finally:
        signal.signal(signal.SIGTERM, before)


def _await(process: "subprocess.Popen[bytes]") -> None:
    """Give a command the time to end; then kill it."""
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
    finally:
        process.kill()


def _end(number: int, _: object) -> None:
    """End as the shell reports signals. _run() then ends the command, which would go on with its port and browser."""
    sys.exit(128 + number)
