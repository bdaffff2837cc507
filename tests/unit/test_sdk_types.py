"""The types of the npm package: what the documentation shows compiles with them, and mistakes do not."""

import json
import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import npm_package
from tools.npm import ensure_node_modules
from tools.paths import NODE_MODULES, ROOT

DOCUMENTS = ("README.md", "npm/README.md", "docs/sdk.md", "docs/adapters.md", "docs/prompt-api.md", "docs/http-api.md")
SNIPPET = re.compile(r"^```[jt]s\n(.*?)^```", re.S | re.M)
# What snippets take from the text around them.
PRELUDE = """
import type { AgentTool, LanguageModelConstructor, Wisp } from "wisp-engine";
declare global {
  const engine: Wisp;
  const token: string;
  const messages: { role: string; content: string }[];
  const getWeather: AgentTool;
  const file: File;
  var LanguageModel: LanguageModelConstructor;
}
"""
# What pages import by its address is in the package by another name.
PATHS = {"/wisp.js": ["./node_modules/wisp-engine/types/wisp.d.ts"],
         "/prompt-api.js": ["./node_modules/wisp-engine/types/sdk/prompt_api.d.ts"]}  # fmt: skip
CONFIG = {"compilerOptions": {"strict": True, "noEmit": True, "skipLibCheck": True, "target": "es2024",
                              "module": "esnext", "moduleResolution": "bundler", "types": [], "paths": PATHS,
                              "lib": ["es2024", "dom", "dom.iterable", "dom.asynciterable"]},
          "include": ["*.ts"]}  # fmt: skip
IMPLICIT = "implicitly has an 'any' type"  # as in JavaScript, which the examples are
ERROR = re.compile(r"^(\w+)\.ts\(\d+,\d+\): error (.*)$", re.M)
BEGIN = """import { load, type AgentTool, type ChatCompletion, type LoadRequest, type Wisp } from "wisp-engine";
import { wisp } from "wisp-engine/vite";
const { Hub, Wisp: Sdk, WispError } = await load();
const engine: Wisp = await Sdk.create();
const messages = [{ role: "user", content: "Hello" }];
"""
RIGHT = """
const answer: ChatCompletion = await engine.chat.completions.create({ messages });
const text: string | null = answer.choices[0].message.content;
for await (const chunk of await engine.chat.completions.create({ messages, stream: true }))
  console.log(chunk.choices[0]?.delta.content?.length, text);
const vector: number[] = (await engine.embeddings.create({ input: "Hello" })).data[0].embedding;
const best: number = (await engine.rerank({ query: "a", documents: ["b"] })).results[0].relevance_score;
const first: number = (await engine.rerank({ query: "a", texts: ["b"], return_text: true }))[0].score;
const getWeather: AgentTool = {
  function: { name: "get_weather", parameters: { type: "object", properties: { city: { type: "string" } } } },
  run: async ({ city }, { signal }) => (await fetch(`/weather/${city}`, { signal })).json(),
};
const { message } = await engine.agents.run({ messages, tools: [getWeather] });
const [file] = (await (await Hub.open()).files("maker/Model-GGUF")).files;
const request: LoadRequest = { model: file.urls, sha256: file.sha256 };
await engine.load(request).catch((error) => { if (error instanceof WispError) console.log(error.code, error.param); });
export default { plugins: [wisp()], vector, best, first, message };
"""
WRONG = {
    "await engine.load('mini');": "has no properties in common",
    "await engine.load({ contextlength: 9 });": "'contextlength' does not exist",
    "(await engine.chat.completions.create({ messages })).choises;": "'choises' does not exist",
    "(await engine.chat.completions.create({ messages, stream: true })).choices;": "'choices' does not exist",
    "(await engine.chat.completions.create({ messages })).choices[0].delta;": "'delta' does not exist",
    "await engine.embeddings.create({ inputs: 'Hello' });": "No overload matches",
    "await engine.chat.completions.create();": "Expected 1-2 arguments",
}


@pytest.fixture(scope="module")
def package(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the npm package is installed."""
    ensure_node_modules(dev=True)
    folder = tmp_path_factory.mktemp("types")
    (folder / "node_modules").mkdir()
    with tarfile.open(npm_package.build(dist, folder)) as tar:
        tar.extractall(folder, filter="data")
    (folder / "package").rename(folder / "node_modules" / "wisp-engine")
    for name in ("openai", "@webgpu"):
        (folder / "node_modules" / name).symlink_to(NODE_MODULES / name)
    return folder


def errors(folder: Path, files: dict[str, str]) -> dict[str, list[str]]:
    """What the compiler says of each of the files, names -> texts."""
    for name, text in files.items():
        (folder / f"{name}.ts").write_text(text, encoding="utf-8")
    (folder / "tsconfig.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    command: list[str | Path] = [NODE_MODULES / ".bin" / "tsc", "-p", "."]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, encoding="utf-8", check=False)
    found: dict[str, list[str]] = {name: [] for name in files}
    for name, text in ERROR.findall(done.stdout):
        if not (name.endswith("_js") and IMPLICIT in text):
            found[name].append(text)
    return found


def snippets() -> Iterator[tuple[str, str]]:
    """The examples of the documentation, each a module of its own: (name, text)."""
    for document in DOCUMENTS:
        for i, code in enumerate(SNIPPET.findall((ROOT / document).read_text(encoding="utf-8"))):
            if "webpack" not in code:
                yield re.sub(r"\W", "_", f"{document} {i} js"), f"{code}export {{}};\n"


def test_right_programs_compile_and_wrong_ones_do_not(package: Path) -> None:
    wrong = {f"wrong{i}": code for i, code in enumerate(WRONG)}
    shown = dict(snippets())
    files = {
        "right": BEGIN + RIGHT,
        "prelude": PRELUDE,
        **shown,
        **{name: BEGIN + code for name, code in wrong.items()},
    }
    found = errors(package, files)
    assert {name: texts for name, texts in found.items() if texts and name not in wrong} == {}
    for name, code in wrong.items():
        assert WRONG[code] in " ".join(found[name]), (code, found[name])
