"""The MCP servers that a command line names: `serve --api --mcp` and `chat --tools` (mcp_relay.py relays to them)."""

import re
import shlex
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py_engine import json_input
from tools.failure import Failure, plain

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
ADDRESS = re.compile(r"https?://[^/]")


@dataclass(frozen=True)
class Address:
    """A server over HTTP, and the headers that each request to it gets."""

    url: str
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """A stdio server: its command, and what its environment has beside this process's."""

    command: list[str]
    env: dict[str, str] = field(default_factory=dict)


Target = Address | Program


def servers_of(named: list[str]) -> dict[str, Target]:
    """The servers of arguments NAME=ADDRESS and NAME=COMMAND, and of files of MCP servers. Raises Failure."""
    servers: dict[str, Target] = {}
    for text in named:
        found = dict([_named(text)]) if "=" in text else _of_file(Path(text))
        if twice := next((name for name in found if name in servers), None):
            raise Failure(f"Two MCP servers have the name {twice}")
        servers |= found
    return servers


def _named(text: str) -> tuple[str, Target]:
    name, _, target = text.partition("=")
    if not NAME.fullmatch(name) or not target.strip():
        raise Failure(f"{plain(text)} is not NAME=ADDRESS or NAME=COMMAND; a name has letters, digits, - and _")
    if ADDRESS.match(target):
        return name, Address(target)
    try:
        words = shlex.split(target)
    except ValueError as error:
        raise Failure(f"{name}: {plain(target)} is no command: {error}") from None
    return name, Program(_found(name, words))


def _of_file(path: Path) -> dict[str, Target]:
    """The servers of a JSON file with "mcpServers" (or "servers"), as other programs have them.

    Each name has "command" with "args" and "env", or "url" with "headers".
    """
    try:
        read = json_input.parse(path.read_bytes())
    except OSError:
        raise Failure(f"{path} is neither NAME=ADDRESS, NAME=COMMAND nor a file of MCP servers") from None
    except ValueError:
        raise Failure(f"{path} is no JSON") from None
    listed = (read.get("mcpServers") or read.get("servers")) if isinstance(read, dict) else None
    if not isinstance(listed, dict):
        raise Failure(f'{path} has no "mcpServers"')
    return {name: _described(name, about) for name, about in listed.items()}


def _described(name: str, about: Any) -> Target:
    about = about if isinstance(about, dict) else {}
    url, command, args = about.get("url"), about.get("command"), about.get("args", [])
    more = about.get("headers" if url else "env", {})
    texts = isinstance(more, dict) and all(isinstance(value, str) for value in more.values())
    if NAME.fullmatch(name) and texts and isinstance(url, str) and ADDRESS.match(url):
        return Address(url, more)
    words = [command, *args] if isinstance(args, list) else [None]
    if not (NAME.fullmatch(name) and texts and all(isinstance(word, str) and word for word in words[:1])):
        raise Failure(
            f'The MCP server {plain(name)} needs a "command" with "args" and "env", or a "url" with "headers"'
        )
    return Program(_found(name, [str(word) for word in words]), more)


def _found(name: str, words: list[str]) -> list[str]:
    """A command with the path of its program."""
    found = shutil.which(words[0])
    if not found:
        raise Failure(f"{name}: there is no program {plain(words[0])}; an address begins with http:// or https://")
    return [found, *words[1:]]
