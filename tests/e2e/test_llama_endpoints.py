"""llama.cpp's own endpoints beside llama.cpp's server, with the same model: equal answers, with all of its fields."""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext

from tests.support.browser import watch
from tests.support.llama_server import llama_server
from tests.support.served_api import served_api
from tests.support.waiting import HANG_S, wait_for
from tools.paths import STATIC

KEY = "sk-of-the-test"
MODEL = STATIC / "models" / "wisp-mini-q4_0.gguf"
ITALY: dict[str, Any] = {"prompt": "The capital of Italy is", "temperature": 0, "n_predict": 8}
ASKED = [{"role": "user", "content": "What is the capital of Italy?"}]
EQUAL = (
    "index", "content", "tokens", "stop", "tokens_predicted", "tokens_evaluated", "has_new_line", "truncated",
    "stop_type", "stopping_word",
)  # fmt: skip
Ask = Callable[..., tuple[int, str, str]]


def asker(url: str, key: str) -> Ask:
    """A function of a path and a body: status, media type, and text of the answer."""

    def ask(path: str, body: Any = None, key: str = key) -> tuple[int, str, str]:
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        data = json.dumps(body).encode() if body is not None else None
        try:
            with urllib.request.urlopen(urllib.request.Request(url + path, data, headers), timeout=HANG_S) as answer:
                return answer.status, answer.headers["content-type"], answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers["content-type"], error.read().decode()

    return ask


@pytest.fixture(scope="module")
def there() -> Iterator[Ask]:
    """llama.cpp's server."""
    with llama_server(MODEL, 256, KEY) as url:
        yield asker(url.removesuffix("v1"), KEY)


@pytest.fixture(scope="module")
def here(dist: Path, context: BrowserContext) -> Iterator[Ask]:
    """A page's engine, by way of `serve --api`."""
    with served_api(dist) as running:
        running.tab_s = HANG_S
        page = context.new_page()
        errors = watch(page)
        page.goto(running.lending_url)
        assert running.wait_for_tab(HANG_S), errors
        yield asker(running.url, running.key)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"return_tokens": True},
        {"n_predict": 3, "return_tokens": True},
        {"n_predict": 0},
        {"prompt": [450, 12, 30, 9], "n_predict": 4, "return_tokens": True},
        {"stop": ["Ro", "a", "b", "c", "d"]},
        {"samplers": ["top_k", "temperature"]},
        {"prompt": ["The capital", 5, " of Italy is", 6], "n_predict": 4, "return_tokens": True},
        {"prompt": [450, 12, "Italy is"], "n_predict": 4},
        {"temperature": -1},
        {"temperature": 5, "top_k": 1},
        {"seed": -1, "mirostat": 0, "dynatemp_range": 0, "min_keep": 0, "cache_prompt": False},
        {"logit_bias": {" Ro": False, "16": 2}},
    ],
)
def test_a_completion(here: Ask, there: Ask, more: dict[str, Any]) -> None:
    theirs, ours = (json.loads(ask("completion", ITALY | more)[2]) for ask in (there, here))
    assert theirs.keys() <= ours.keys()
    assert theirs["timings"].keys() <= ours["timings"].keys()
    assert {name: ours[name] for name in EQUAL} == {name: theirs[name] for name in EQUAL}
    if isinstance(ours["prompt"], str):  # token ids are not made a text
        assert ours["prompt"] == theirs["prompt"]


def test_several_prompts_and_chosen_fields(here: Ask, there: Ask) -> None:
    fields = ["content", "index", "generation_settings/n_predict", "nothing"]
    for prompts in (["Once upon", "The capital of France is"], [[12, 13], "b", ["x", 3]]):
        request = ITALY | {"prompt": prompts, "response_fields": fields}
        theirs, ours = (json.loads(ask("completion", request)[2]) for ask in (there, here))
        assert ours == theirs
        assert len(ours) == len(prompts)


def test_several_answers(here: Ask, there: Ask) -> None:
    request = ITALY | {"n_cmpl": 1, "n": 1, "response_fields": ["content", "index"]}
    theirs, ours = (json.loads(ask("completion", request)[2]) for ask in (there, here))
    assert ours == theirs
    again = json.loads(here("completion", request | {"n": 2})[2])  # their server has one slot, so one answer at a time
    assert again == [{"index": i, "content": ours["content"]} for i in range(2)]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"n_predict": 3},
        {"n_predict": 0},
        {"n_predict": -1, "samplers": ["top_k", "temperature"]},
        {"max_tokens": 4, "stop": ["Rom"]},
        {"stop": ["tal of"], "id_slot": -1, "n_keep": 0, "timings_per_token": True, "speculative.n_max": 0},
        {"logit_bias": {"The": False}, "min_keep": 0, "post_sampling_probs": False, "return_progress": False},
    ],
)
def test_a_chat_with_its_parameters(here: Ask, there: Ask, more: dict[str, Any]) -> None:
    request = {"messages": ASKED, "temperature": 0} | more
    theirs, ours = (json.loads(ask("v1/chat/completions", request)[2]) for ask in (there, here))
    (their_choice,), (choice,) = theirs["choices"], ours["choices"]
    assert choice["message"]["content"] == their_choice["message"]["content"]
    assert choice["finish_reason"] == their_choice["finish_reason"]
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert ours["usage"][name] == theirs["usage"][name], name


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("chat/completions/input_tokens", {"messages": ASKED}),
        ("v1/responses/input_tokens", {"input": "What is the capital of Italy?"}),
        ("v1/messages/count_tokens", {"messages": ASKED, "max_tokens": 5}),
    ],
)
def test_the_tokens_of_a_request(here: Ask, there: Ask, path: str, body: Any) -> None:
    theirs, ours = (json.loads(ask(path, body)[2]) for ask in (there, here))
    assert ours == theirs


def test_paths_without_v1(here: Ask) -> None:
    asked = {"messages": ASKED, "temperature": 0, "max_tokens": 3}
    for path, body in (
        ("chat/completions", asked),
        ("completions", ITALY),
        ("responses", {"input": "Hi", "max_output_tokens": 1}),
        ("embedding", {"content": "Hi"}),
        ("models", None),
        ("v1/health", None),
    ):
        status, _, text = here(path, body)
        assert status == 200, (path, text)


@pytest.mark.parametrize("limit", [3, 30])
def test_probabilities(here: Ask, there: Ask, limit: int) -> None:
    """Of every token, also of the end, which comes before the second limit."""
    request = ITALY | {"n_probs": 3, "return_tokens": True, "n_predict": limit}
    (theirs, ours) = (json.loads(ask("completion", request)[2]) for ask in (there, here))
    assert ours["stop_type"] == theirs["stop_type"] == ("limit" if limit == 3 else "eos")
    assert [entry["id"] for entry in ours["completion_probabilities"]] == ours["tokens"]
    for our, their in zip(ours["completion_probabilities"], theirs["completion_probabilities"], strict=True):
        assert our.keys() == their.keys()
        assert (our["id"], our["token"], our["bytes"]) == (their["id"], their["token"], their["bytes"])
        assert abs(our["logprob"] - their["logprob"]) < 0.2  # its products round activations to 8 bits
        assert [one["id"] for one in our["top_logprobs"]] == [one["id"] for one in their["top_logprobs"]]


@pytest.mark.parametrize("more", [{}, {"prompt": [450, 12, 30, 9]}, {"return_tokens": True, "stop": ["Rome"]}])
def test_a_stream(here: Ask, there: Ask, more: dict[str, Any]) -> None:
    def events(ask: Ask) -> list[dict[str, Any]]:
        _, kind, text = ask("completion", ITALY | {"stream": True} | more)
        assert kind.startswith("text/event-stream")
        return [json.loads(line.removeprefix("data: ")) for line in text.split("\n\n") if line]

    theirs, ours = events(there), events(here)
    assert "".join(event["content"] for event in ours) == "".join(event["content"] for event in theirs)
    assert [event["stop"] for event in ours[-2:]] == [event["stop"] for event in theirs[-2:]] == [False, True]
    assert (theirs[0].keys(), theirs[0]["tokens_evaluated"]) == (ours[0].keys(), ours[0]["tokens_evaluated"])
    assert theirs[-1].keys() <= ours[-1].keys()
    assert [token for event in ours for token in event["tokens"]] == [t for event in theirs for t in event["tokens"]]
    assert (ours[-1]["content"], ours[-1]["tokens"]) == (theirs[-1]["content"], theirs[-1]["tokens"]) == ("", [])


def test_tokens_and_prompts(here: Ask, there: Ask) -> None:
    def same(path: str, body: Any) -> Any:
        (theirs, ours) = (json.loads(ask(path, body)[2]) for ask in (there, here))
        assert ours == theirs
        return ours

    for content in ("Once upon a time", "Hello w\u00f6rld \U0001f600", ["Hello", 5, " you"], ""):
        for more in ({}, {"with_pieces": True}, {"add_special": True}, {"parse_special": False}):
            same("tokenize", {"content": content, **more})
    tokens = same("tokenize", {"content": "Once upon a time"})["tokens"]
    assert same("detokenize", {"tokens": tokens}) == {"content": "Once upon a time"}
    same("detokenize", {"tokens": []})
    same("detokenize", {})
    same("apply-template", {"messages": ASKED})
    same("apply-template", {"messages": [*ASKED, {"role": "assistant", "content": "It is"}]})


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("completion", {"n_predict": 3}),
        ("completion", {"prompt": "a", "n_predict": "x"}),
        ("completion", {"prompt": [5] * 5000}),
        ("apply-template", {}),
    ],
)
def test_errors_have_its_form(here: Ask, there: Ask, path: str, body: Any) -> None:
    (status, _, text), (their_status, _, their_text) = here(path, body), there(path, body)
    error, theirs = json.loads(text)["error"], json.loads(their_text)["error"]
    assert theirs.keys() <= error.keys()
    assert status == error["code"]
    if their_status < 500:  # it has no answer of its own to a chat without messages
        assert (status, error["code"], error["type"]) == (their_status, theirs["code"], theirs["type"])
    assert error.get("n_prompt_tokens") == theirs.get("n_prompt_tokens")


def test_a_wrong_key_has_its_form(here: Ask, there: Ask) -> None:
    ours, theirs = (json.loads(ask("completion", ITALY, "wrong")[2])["error"] for ask in (here, there))
    assert (ours["code"], ours["type"]) == (theirs["code"], theirs["type"]) == (401, "authentication_error")


# What the page has no counterpart of, or does not know, of llama.cpp's properties and parameters.
NOT_HERE = {"model_path", "ui", "ui_settings", "webui", "webui_settings", "is_sleeping", "build_info",
            "cors_proxy_enabled", "chat_template_caps"}  # fmt: skip
NOT_IN_PARAMS = {"stream", "n_keep", "mirostat_tau", "mirostat_eta", "adaptive_decay",
                 "chat_format", "reasoning_format", "reasoning_in_content", "generation_prompt", "speculative.types",
                 "timings_per_token", "backend_sampling", "lora"}  # fmt: skip


def test_the_state_of_the_server(here: Ask, there: Ask) -> None:
    """Its fields, of slots that have worked, properties and counters."""

    def asked(path: str) -> tuple[Any, Any]:
        theirs, ours = (json.loads(ask(path)[2]) for ask in (there, here))
        return theirs, ours

    for ask in (here, there):
        ask("completion", {"prompt": "Once", "n_predict": 3, "temperature": 0.5})
    assert asked("health")[1] == {"status": "ok"}
    (their_slot, *_), slots = asked("slots")
    assert set(their_slot) - set(slots[0]) == {"n_prompt_tokens_processed", "n_prompt_tokens_cache"}
    assert set(their_slot["params"]) - set(slots[0]["params"]) <= NOT_IN_PARAMS
    assert slots[0]["params"]["temperature"] == their_slot["params"]["temperature"] == 0.5
    assert slots[0]["params"]["n_predict"] == their_slot["params"]["n_predict"] == 3
    (theirs,), (ours,) = their_slot["next_token"], slots[0]["next_token"]
    assert (ours.keys(), ours["has_next_token"]) == (theirs.keys(), theirs["has_next_token"])
    their_props, props = asked("props")
    assert set(their_props) - set(props) <= NOT_HERE
    assert len(slots) == props["total_slots"]
    their_defaults, defaults = (found["default_generation_settings"]["params"] for found in (their_props, props))
    assert set(their_defaults) - set(defaults) <= NOT_IN_PARAMS
    for name in ("top_k", "n_predict", "samplers", "typical_p", "mirostat", "dynatemp_range", "dry_penalty_last_n"):
        assert defaults[name] == their_defaults[name], name
    for name in ("bos_token", "eos_token", "modalities", "model_ftype"):
        assert props[name] == their_props.get(name, props[name]), name
    _, kind, text = here("metrics")
    assert kind.startswith("text/plain; version=0.0.4")
    names = [set(re.findall("^(llamacpp:[a-z_]+) ", found, re.MULTILINE)) for found in (there("metrics")[2], text)]
    drafts = {f"llamacpp:spec_decode_num_{name}_total" for name in ("draft_tokens", "accepted_tokens")}
    assert names[0] - names[1] == drafts

    def counted(name: str) -> float:
        found = re.search(rf"^llamacpp:{name} (\S+)", text, re.MULTILINE)
        assert found
        return float(found[1])

    assert counted("tokens_predicted_total") >= 3
    assert counted("n_decode_total") >= 3
    assert counted("n_tokens_max") >= 4
    assert counted("n_busy_slots_per_decode") >= 1


def test_no_slot_available(here: Ask) -> None:
    """`fail_on_no_slot` is an error while all slots work; they show what they work on."""
    count = len(json.loads(here("slots?fail_on_no_slot=1")[2]))
    long = {"prompt": "Once", "n_predict": 300, "ignore_eos": True}
    answers: list[tuple[int, Any, str]] = []
    with ThreadPoolExecutor(count) as pool:

        def refused() -> bool:
            """Ask for all slots at once; on a busy machine, the first answer may end before the last begins."""
            running = [pool.submit(here, "completion", long) for _ in range(count)]
            while not all(one.done() for one in running):
                answers.append(here("slots?fail_on_no_slot=1"))
                if answers[-1][0] != 200:
                    break
            assert here("slots?fail_on_no_slot=0")[0] == 200
            assert all(one.result()[0] == 200 for one in running)
            return bool(answers) and answers[-1][0] != 200

        wait_for(refused)
    status, _, text = answers[-1]
    assert (status, json.loads(text)["error"]["type"]) == (503, "unavailable_error")
    assert here("slots?fail_on_no_slot=1")[0] == 200
    here("completion", {"prompt": "Once", "n_predict": -1, "stop": ["e"]})
    unlimited, *limited = json.loads(here("slots")[2])
    assert unlimited["next_token"][0]["n_remain"] == -1
    assert {slot["next_token"][0]["n_remain"] for slot in limited} == {0}
