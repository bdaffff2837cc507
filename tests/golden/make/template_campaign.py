"""Search for conversations that Wisp renders otherwise than llama.cpp's server.

    python -m tests.golden.make.template_campaign --seed 1 --count 300 [GOLDEN ...]

Each case is a chat template of chat/*.json, with up to two changes of template_changes.py, and random conversations
(random_messages.py). llama.cpp's server answers /apply-template, as Wisp's endpoint of that name does. A line is
printed for each difference, with the fewest messages that show it. Where Jinja2, set up as Hugging Face does, gives
Wisp's text, the line begins with "llama.cpp": its template engine is one of its own, and it changes conversations for
templates that reject them.
"""

import argparse
import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from app.openai.requests import chat_request
from py_engine.errors import WispError
from py_engine.text.chat_template import ChatTemplate
from tests.golden.make.campaign import NOT_COMPARED, in_process
from tests.golden.make.chat_templates import environment
from tests.golden.make.random_messages import conversation
from tests.golden.make.template_changes import changed
from tools.goldens import GOLDEN

CHAT = GOLDEN / "chat"
MODEL = GOLDEN / "qwen" / "qwen3.F16.gguf"  # whose BOS and EOS the server writes
BOS, EOS = "<|bos|>", "<|eos|>"
CONVERSATIONS = 12  # of a template
ERROR = "an error"
SEPARATOR = "\x1f"  # between the lines that a process reports

Body = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A template, and the requests that it renders."""

    seed: int
    name: str
    source: str
    changes: list[str]
    bodies: list[Body]

    @classmethod
    def of(cls, seed: int, names: list[str]) -> "Case":
        """The case of a seed."""
        random = np.random.default_rng(seed)
        name = str(random.choice(names))
        source, changes = changed(json.loads((CHAT / f"{name}.json").read_text("utf-8"))["template"], random)
        return cls(seed, name, source, changes, [conversation(random) for _ in range(CONVERSATIONS)])


def server(source: str) -> Callable[[Body], str]:
    """llama.cpp's answers to requests with a template: the text, or ERROR."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.chat_template, params.port, params.n_ctx = str(MODEL), source, 0, 64
    params.prefill_assistant = False  # the text of a message that begins an answer is added to the prompt
    params.verbosity, params.warmup, params.fit_params, params.use_jinja = -1, False, False, True
    running = xllamacpp.Server(params)

    def answer(body: Body) -> str:
        address, data = f"{running.listening_address}/apply-template", json.dumps(body).encode()
        try:
            with urllib.request.urlopen(
                urllib.request.Request(address, data, {"Content-Type": "application/json"})
            ) as got:
                return str(json.load(got)["prompt"])
        except urllib.error.HTTPError as error:
            return f"{ERROR}: {json.load(error)['error']['message']}"

    return answer


def wisp(template: ChatTemplate, body: Body, at: datetime) -> str:
    """Wisp's answer to the same request (app/endpoints/compatible.py)."""
    asked = {name: body.get(name) for name in ("messages", "tools", "chat_template_kwargs")}
    try:
        request = chat_request(asked)
        variables = {"add_generation_prompt": body.get("add_generation_prompt", True)} | request.template_variables
        messages = template.with_system_asked(template.prepare(request.messages))
        return template.render(messages, at, tools=body.get("tools"), **variables)
    except WispError as error:
        return f"{ERROR}: {error.message}"


def hugging_face(source: str, template: ChatTemplate, body: Body, at: datetime) -> str:
    """What Jinja2 makes of the messages that Wisp prepares."""
    asked = {name: body.get(name) for name in ("messages", "tools", "chat_template_kwargs")}
    try:
        request = chat_request(asked)
        variables = {"add_generation_prompt": body.get("add_generation_prompt", True)} | request.template_variables
        variables |= {
            "messages": template.with_system_asked(template.prepare(request.messages)),
            "tools": body.get("tools"),
        }
        return environment(at).from_string(source).render(bos_token=BOS, eos_token=EOS, documents=None, **variables)
    except (WispError, jinja2.exceptions.TemplateError, TypeError, ValueError, AttributeError) as error:
        return f"{ERROR}: {error}"


def same(one: str, other: str) -> bool:
    return one == other or (one.startswith(ERROR) and other.startswith(ERROR))


def differences(case: Case) -> Iterator[str]:
    """A line for each conversation that Wisp renders otherwise."""
    at = datetime.now()
    try:
        answer = server(case.source)
    except RuntimeError:  # it does not parse the template
        yield NOT_COMPARED
        return
    template = ChatTemplate(case.source, BOS, EOS)

    def differs(body: Body) -> bool:
        return bool(body["messages"]) and not same(wisp(template, body, at), answer(body))

    for given in case.bodies:
        if differs(given):
            body = simplest(given, differs)
            mine, theirs = wisp(template, body, at), answer(body)
            judged = "llama.cpp" if same(mine, hugging_face(case.source, template, body, at)) else "WISP"
            said = json.dumps({name: value for name, value in body.items() if value is not None}, ensure_ascii=False)
            yield f"{judged}: {said}\n    Wisp      {shown(mine, theirs)}\n    llama.cpp {shown(theirs, mine)}"


def shown(text: str, other: str) -> str:
    """A text from a little before where it differs."""
    if text.startswith(ERROR):
        return text[:300].replace("\n", " ")
    first = next((i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), min(len(text), len(other)))
    return repr(text[max(0, first - 40) : first + 60])


def simplest(body: Body, differs: Callable[[Body], bool]) -> Body:
    """The request with as little as still shows a difference."""
    for other in simpler(body):
        if differs(other):
            return simplest(other, differs)
    return body


def simpler(body: Body) -> Iterator[Body]:
    messages = body["messages"]
    for i in range(len(messages)):
        yield body | {"messages": messages[:i] + messages[i + 1 :]}
    for name in ("tools", "chat_template_kwargs", "add_generation_prompt"):
        if name in body:
            yield {key: value for key, value in body.items() if key != name}
    for i, message in enumerate(messages):
        for name in message:
            if name not in ("role", "content"):
                less = {key: value for key, value in message.items() if key != name}
                yield body | {"messages": [*messages[:i], less, *messages[i + 1 :]]}
        if message["content"] not in ("x", None):
            yield body | {"messages": [*messages[:i], message | {"content": "x"}, *messages[i + 1 :]]}


def compared(case: Case, _: Path) -> str:
    """The lines of a case. The process ends at once: a server's threads do not end by themselves."""
    return SEPARATOR.join(differences(case))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.make.template_campaign", description=__doc__)
    parser.add_argument("goldens", nargs="*", metavar="GOLDEN")
    parser.add_argument("--seed", type=int, default=1, help="of the first case")
    parser.add_argument("--count", type=int, default=100, help="of cases")
    arguments = parser.parse_args()
    names = arguments.goldens or sorted(path.stem for path in CHAT.glob("*.json"))
    ran = faults = 0
    os.environ["LLAMA_LOG_VERBOSITY"] = "-1"
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        case = Case.of(seed, names)
        found = in_process(partial(compared, case))
        if found == NOT_COMPARED:
            print(f"seed {seed}, {case.name}, {case.changes}: not compared", flush=True)
            continue
        ran += len(case.bodies)
        for line in filter(None, found.split(SEPARATOR)):
            faults += 1
            print(f"seed {seed}, {case.name}, {case.changes}: {line}", flush=True)
    print(f"{ran} conversations compared, {faults} different", flush=True)


if __name__ == "__main__":
    main()
