"""Ask the page's model from the terminal: open the page in headless Chromium and stream the answer to stdout.

With --tools, the model may call tools of MCP servers, each call with the user's leave.

`build.py chat` runs this in the virtual environment, which has Playwright.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, Page, Playwright, sync_playwright
from playwright.sync_api import Error as PlaywrightError

from tools.api import ApiServer
from tools.browser import launch_options
from tools.failure import Failure, plain
from tools.mcp_servers import Target, servers_of
from tools.paths import DIST, cache_dir
from tools.person import Person, tell
from tools.serve import HOST

PORT = 8017  # the same each time, if it is free: the browser caches downloaded models per origin
BAR = 30  # characters

ASK = """async ({model, file, prompt, maxTokens, temperature}) => {
  const { Wisp } = await import("/wisp.js");
  try {
    const engine = await Wisp.create({ onProgress: (progress) => wispProgress(progress) });
    const chosen = file ? document.querySelector("#chat-file").files[0] : model ?? undefined;
    await engine.load({ model: chosen });
    await wispProgress(null);
    const stream = await engine.chat.completions.create({
      messages: [{ role: "user", content: prompt }], stream: true, max_tokens: maxTokens, temperature,
    });
    for await (const chunk of stream) await wispText(chunk.choices[0]?.delta?.content ?? "");
    return null;
  } catch (error) {
    return error.message;
  }
}"""


ASK_WITH_TOOLS = """async ({ model, file, prompt, maxTokens, temperature, servers }) => {
  const { Wisp } = await import("/wisp.js");
  try {
    const engine = await Wisp.create({ onProgress: (progress) => wispProgress(progress) });
    const several = servers.length > 1; // then their tools need names that differ
    const connect = ({ name, url, headers }) =>
      engine.mcp.connect(url, { name: several ? name : "", headers, onInput: (question) => wispQuestion(question) });
    const connected = await Promise.all(servers.map(connect));
    await engine.load({ model: file ? document.querySelector("#chat-file").files[0] : model ?? undefined });
    await wispProgress(null);
    const asking = (tool) => async (given, options) => {
      if (!(await wispAllow(tool.function.name, given))) throw new Error("The user does not allow this call.");
      return tool.run(given, options);
    };
    const tools = [];
    for (const tool of connected.flatMap((server) => server.tools)) {
      const reason = await engine.mcp.unusable(tool);
      if (reason) await wispLeftOut(tool.function.name, reason);
      else tools.push({ ...tool, run: asking(tool) });
    }
    const messages = [{ role: "user", content: prompt }];
    const onEvent = (event) => event.type === "result" && wispResult(event.content);
    const { message, ended } = await engine.agents.run({
      messages, tools, max_tokens: maxTokens, temperature, parallel_tool_calls: false, onEvent,
    });
    await wispText(message.content ?? "");
    return ended === "tokens" && !message.content ? "The answer has no text within --max-tokens." : null;
  } catch (error) {
    return error.message;
  }
}"""


def main(arguments: list[str]) -> int:
    """Answer one prompt; return the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("prompt")
    parser.add_argument("--model")
    parser.add_argument("--max-tokens", type=int)
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--tools", nargs="+", default=[])
    parser.add_argument("--yes", action="store_true")
    options = parser.parse_args(arguments)

    def ask() -> None:
        with sync_playwright() as playwright:
            _ask(playwright, options)

    return exit_status(ask)


def exit_status(work: Callable[[], None]) -> int:
    """Do the work; return 0, or 1 after printing what failed."""
    try:
        work()
    except Failure as failure:
        print(f"build.py: {plain(str(failure))}", file=sys.stderr)
        return 1
    except PlaywrightError as error:
        print(f"build.py: the browser failed: {plain(error.message.splitlines()[0])}", file=sys.stderr)
        return 1
    return 0


def _ask(playwright: Playwright, options: argparse.Namespace) -> None:
    file = file_of(options.model)
    given = {
        "model": None if file else options.model,
        "file": bool(file),
        "prompt": options.prompt,
        "maxTokens": options.max_tokens,
        "temperature": options.temperature,
    }
    servers = servers_of(options.tools)
    with engine_page(playwright, file, servers) as (page, server):
        if servers:
            person = Person(allow_all=options.yes)
            page.expose_function("wispAllow", person.allow)
            page.expose_function("wispQuestion", person.answer)
            page.expose_function("wispResult", person.show)
            page.expose_function("wispLeftOut", lambda tool, reason: tell(f"Without {tool}: {reason}"))
            given["servers"] = server.relay.described(f"{HOST}:{server.server_address[1]}")
        problem = page.evaluate(ASK_WITH_TOOLS if servers else ASK, given)
    print()
    if problem:
        raise Failure(problem)


def file_of(model: str | None) -> Path | None:
    """The model's file, if its name is that of one."""
    return Path(model) if model and Path(model).is_file() else None


@contextmanager
def engine_page(
    playwright: Playwright, file: Path | None, servers: dict[str, Target] | None = None
) -> Iterator[tuple[Page, ApiServer]]:
    """Serve dist/ and open it in a headless browser whose profile outlives the run, so that models stay stored.

    The page may use the MCP servers.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            server, profile = ApiServer(DIST, PORT), str(cache_dir("chat-profile"))
        except OSError:
            server, profile = ApiServer(DIST, 0), folder
        server.relay.servers = servers or {}
        server.start()
        context = open_browser(playwright, profile, folder)
        try:
            yield open_page(context, server.url, file), server
        finally:
            context.close()
            server.shutdown()


def open_browser(playwright: Playwright, profile: str, spare: str) -> BrowserContext:
    """Start a headless browser on the profile folder, or on `spare` while another run uses the profile."""
    how = launch_options()
    try:
        return playwright.chromium.launch_persistent_context(profile, **how)
    except PlaywrightError:
        return playwright.chromium.launch_persistent_context(spare, **how)


def open_page(context: BrowserContext, url: str, file: Path | None) -> Page:
    """Open the page without its script, which would first load the model that it showed last."""
    page = context.new_page()
    page.set_default_timeout(0)
    context.route("**/assets/page-*.js", lambda route: route.fulfill(body="", content_type="text/javascript"))
    progress = Progress()
    page.expose_function("wispProgress", progress)
    page.expose_function("wispText", lambda text: print(plain(text), end="", flush=True))
    page.goto(url)
    if file:
        page.evaluate(
            """() => document.body.append(
                Object.assign(document.createElement("input"), { type: "file", id: "chat-file" }))"""
        )
        page.set_input_files("#chat-file", str(file))
    return page


class Progress:
    """A progress bar on one line of stderr; where stderr is no terminal, the name of each stage."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def __call__(self, progress: dict[str, Any] | None) -> None:
        if progress is None:
            if sys.stderr.isatty():
                print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            return
        stage, loaded, total = plain(progress["stage"]), progress["loaded"], progress["total"]
        if not sys.stderr.isatty():
            if stage not in self._told:
                print(f"{stage} ...", file=sys.stderr, flush=True)
            self._told.add(stage)
            return
        done = BAR * loaded // total if total else 0
        size = f"{loaded / 1e6:7.1f} of {total / 1e6:.1f} MB" if total > 1000 else f"{loaded} of {total}"
        speed = f", {progress['speed'] / 1e6:.0f} MB/s" if progress.get("speed") else ""
        bar = f"[{'#' * done}{'.' * (BAR - done)}]"
        print(f"\r\x1b[K{stage:>9} {bar} {size}{speed}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
