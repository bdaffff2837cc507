"""The hub dialog against a local server with the documented API: search, files, fit, gated models, three clicks."""

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.support.browser import new_profile
from tests.support.chat_page import SETTINGS, ask, wait_ready
from tests.support.fake_hub import TOKEN, FakeHub, Repository
from tests.support.hub_mirror import use_mirror
from tests.support.page_looks import faults
from tests.support.waiting import wait_for
from tools.paths import ROOT
from tools.selection import fewer
from tools.serve import Server

MODELS = ROOT / "static" / "models"
SPLIT = ROOT / "tests" / "golden" / "split"
CURATED = "HuggingFaceTB/SmolLM2-360M-Instruct-GGUF"


@pytest.fixture(scope="module")
def hub() -> Iterator[FakeHub]:
    """A hub with a model of the curated list, a split one, a gated one, and many more."""
    hub = FakeHub()
    mini = {kind: (MODELS / f"wisp-mini-{kind}.gguf").read_bytes() for kind in ("q4_0", "q8_0")}
    files = {f"smollm2-360m-instruct-{kind}.gguf": data for kind, data in mini.items()}
    hub.add(Repository(CURATED, {**files, "mmproj-f16.gguf": b"no language model"}))
    hub.add(Repository("maker/split-GGUF", {p.name: p.read_bytes() for p in SPLIT.glob("*-of-*.gguf")}, downloads=9))
    hub.add(Repository("maker/gated-GGUF", {"gated-Q4_0.gguf": mini["q4_0"]}, license="gemma", gated=True))
    for i in range(300):
        license = "mit" if i % 10 == 0 else "apache-2.0"
        hub.add(
            Repository(f"many/model-{i:03}-GGUF", license=license, downloads=1000 - i, likes=i, parameters=i * 10**8)
        )
    yield hub
    hub.close()


@pytest.fixture(scope="module")
def context(chromium: Callable[[str | None], Browser], server: Server, hub: FakeHub) -> Iterator[BrowserContext]:
    """An empty profile but for the address of the hub's mirror."""
    made = new_profile(chromium(None), service_worker=False)
    use_mirror(made, server.url, hub.url)
    yield made
    made.close()


@pytest.fixture(scope="module")
def opened(context: BrowserContext, server: Server) -> Page:
    """The page, with the model that comes with it."""
    page = context.new_page()
    page.add_init_script(f'localStorage["wisp.settings"] ??= {json.dumps(json.dumps(SETTINGS))}')
    page.goto(server.url)
    wait_ready(page)
    return page


@pytest.fixture
def page(opened: Page, hub: FakeHub) -> Page:
    """The page without a dialog, and the hub without what it has noted."""
    opened.evaluate("document.querySelectorAll('dialog[open]').forEach((dialog) => dialog.close())")
    hub.requests.clear()
    for file in hub.cdn.files.values():
        file.sent = 0
    return opened


@pytest.fixture
def in_language(page: Page) -> Iterator[Callable[[str], None]]:
    """Choose the page's language until the test ends."""

    def choose(code: str) -> None:
        page.evaluate("document.querySelectorAll('dialog[open]').forEach((dialog) => dialog.close())")
        page.click("#settings-button")
        page.select_option("#language", code)
        expect(page.locator("html")).to_have_attribute("lang", code)
        page.keyboard.press("Escape")

    yield choose
    choose("en")


def search(page: Page) -> None:
    """Open the search."""
    page.click("#model-button")
    page.click("#hub-open")


def test_a_repository_in_place_of_an_address_shows_its_files(page: Page) -> None:
    for typed in ("maker/split-GGUF", "huggingface.co/maker/split-GGUF/tree/main"):
        page.click("#model-button")
        page.fill("#url-input", typed)
        page.press("#url-input", "Enter")
        expect(page.locator("#hub-name")).to_have_text("maker/split-GGUF")
        expect(page.locator("#hub-files > li").first).to_be_visible()
        page.keyboard.press("Escape")
        page.keyboard.press("Escape")


def test_three_clicks_to_a_model_of_the_hub(page: Page, hub: FakeHub) -> None:
    """Nothing is requested before the second click. The file is compared with the hash that the API states."""
    page.click("#model-button")
    first = page.locator("#curated-list button").first
    expect(first).to_contain_text("SmolLM2")
    assert hub.requests == []
    first.click()
    best = page.locator("#hub-files .best")
    expect(best).to_contain_text("Best for this device")
    expect(best).to_contain_text("Fits with 2,048 tokens")
    expect(best).to_contain_text("tokens/s on the CPU")
    expect(page.locator("#hub-files li")).to_have_count(2)
    headers = sum(file.sent for file in hub.cdn.files.values())
    assert headers <= 2 << 20, "only headers travel, 1 MiB of each file"
    best.get_by_role("button", name="Run").click()
    wait_ready(page)
    expect(page.locator("#model-name")).to_contain_text("smollm2-360m-instruct")
    refused = page.locator("[data-key=unsuited]")
    expect(refused).to_contain_text("could not be loaded with its projector")  # which is no model file at all
    assert "Paris" in ask(page, "What is the capital of France?")
    page.click("#model-button")
    expect(page.locator("#cached-list li", has_text="smollm2")).to_contain_text("verified")
    assert all(token is None for _, token in hub.requests)


def test_the_pages_models_are_listed_once_and_every_curated_model_has_a_licence(page: Page) -> None:
    page.click("#model-button")
    expect(page.locator("#model-list strong")).to_have_text(["Wisp Mini", "Wisp Mini Sees"])
    curated = page.evaluate(
        """async () => (await import('/repo/app/hub/curated.js')).CURATED.map(({ kind, about, ...model }) =>
            ({ ...model, kind: String(kind), about: String(about) }))"""
    )
    assert 12 <= len(curated) <= 16
    assert {model["kind"] for model in curated} == {"Chat", "Reasoning", "Code", "Vision", "Embedding"}
    assert len({model["repository"] for model in curated}) == len(curated)
    assert all(model["license"] and model["about"] and model["parameters"] for model in curated)
    expect(page.locator("#curated-list button")).to_have_count(len(curated))


def test_results_are_drawn_as_they_are_scrolled_to(page: Page, hub: FakeHub) -> None:
    search(page)
    rows = page.locator("#hub-results .row-of-list")
    expect(rows.first).to_contain_text("model-000")
    assert len([path for path, _ in hub.requests if path.startswith("/api/models?")]) == 1
    page.locator("#hub-results button").first.focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#hub-results button:focus")).to_contain_text("model-001")

    def at_the_end() -> bool:
        page.keyboard.press("End")  # each time to the end of what has arrived
        return any("cursor=280" in path for path, _ in hub.requests)

    wait_for(at_the_end)
    expect(rows.last).to_have_attribute("aria-setsize", "303")
    assert rows.count() < 60


def test_filters_are_the_apis(page: Page, hub: FakeHub) -> None:
    search(page)
    page.fill("#hub-query", "model-0")
    page.get_by_label("Licence").select_option("mit")
    page.get_by_label("Sort").select_option("likes")
    page.get_by_label("Size").select_option("small")
    rows = page.locator("#hub-results .row-of-list")
    expect(rows).to_have_count(4)
    expect(rows.first).to_contain_text("model-040")
    expect(rows.first).to_contain_text("4.0 B parameters")
    page.fill("#hub-query", "no such model")
    expect(page.locator("#hub-status")).to_contain_text("Nothing found")
    page.locator("#hub-form").evaluate("(form) => form.reset()")


def test_an_outdated_search_is_cancelled(page: Page, hub: FakeHub) -> None:
    search(page)
    expect(page.locator("#hub-status")).to_be_empty()
    hub.hold = threading.Event()
    page.fill("#hub-query", "gated")
    wait_for(lambda: any("search=gated" in path for path, _ in hub.requests))
    with page.expect_event("requestfailed", lambda request: "search=gated" in request.url):
        page.fill("#hub-query", "split")
    wait_for(lambda: any("search=split" in path for path, _ in hub.requests))
    hub.hold.set()
    hub.hold = None
    expect(page.locator("#hub-results .row-of-list")).to_have_count(1)
    expect(page.locator("#hub-results")).to_contain_text("split-GGUF")


def test_a_split_model_is_one_entry_and_runs(page: Page) -> None:
    search(page)
    page.fill("#hub-query", "split")
    page.locator("#hub-results button", has_text="split-GGUF").click()
    files = page.locator("#hub-files li")
    expect(files).to_have_count(1)
    expect(files).to_contain_text("parts")
    expect(files).to_contain_text("Fits with")


def test_a_gated_model_needs_the_token_which_no_other_host_gets(page: Page, hub: FakeHub) -> None:
    settings = page.locator("#hub-settings")
    search(page)
    page.fill("#hub-query", "gated")
    page.locator("#hub-results button", has_text="gated-GGUF").click()
    expect(page.locator("#hub-error")).to_contain_text("token")
    settings.locator("[name=token]").fill(TOKEN)
    settings.get_by_role("button", name="Save").click()
    expect(page.locator("#hub-files .best")).to_contain_text("Fits with")
    assert {token for path, token in hub.requests if "/resolve/" in path} == {f"Bearer {TOKEN}"}
    assert hub.cdn.authorizations == set()
    settings.locator("summary").click()
    expect(settings.get_by_role("button", name="Forget the token")).to_be_visible()
    settings.locator("[name=baseURL]").fill("http://127.0.0.1:1")
    settings.get_by_role("button", name="Save").click()
    expect(page.locator("#hub-error")).to_contain_text("does not answer")
    stored = page.evaluate(
        "async () => (await import('/wisp.js')).Hub.open().then((hub) => [hub.baseURL, hub.hasToken])"
    )
    assert stored == ["http://127.0.0.1:1", False]
    page.evaluate("async (url) => (await import('/wisp.js')).Hub.configure({ baseURL: url })", hub.url)


def test_an_address_typed_before_the_settings_are_read_stays(page: Page) -> None:
    """Reading them takes a while; it once replaced what was typed at once."""
    search(page)
    typed = page.evaluate(
        """async () => {
            const details = document.getElementById("hub-settings");
            const field = document.querySelector("#hub-settings-form [name=baseURL]");
            const { Hub } = await import("/wisp.js");
            const toggled = () => new Promise((resolve) => details.addEventListener("toggle", resolve, { once: true }));
            if (details.open) {
                details.open = false;
                await toggled();
            }
            const opened = toggled();
            details.open = true;
            field.value = "https://mirror.example";
            field.dispatchEvent(new Event("input", { bubbles: true }));
            await opened;
            for (let i = 0; i < 3; i += 1) await Hub.open(); // after the page's own reading of them
            return field.value;
        }"""
    )
    assert typed == "https://mirror.example"


@pytest.mark.parametrize(
    ("width", "scheme", "language"),
    fewer([(390, "light", "de"), (1280, "dark", "ar"), (390, "dark", "ar"), (1280, "light", "en")], 2),
)
def test_nothing_overflows_and_everything_has_a_name(
    page: Page, width: int, scheme: Any, language: str, in_language: Callable[[str], None]
) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    in_language(language)

    def check(what: str) -> None:
        assert faults(page) == [], what

    page.click("#model-button")
    check("models")
    page.click("#hub-open")
    page.fill("#hub-query", "")
    expect(page.locator("#hub-results .row-of-list").first).to_contain_text("model-000")
    check("search")
    page.fill("#hub-query", "SmolLM2")
    page.locator("#hub-results button", has_text="SmolLM2").click()
    expect(page.locator("#hub-files .best")).to_be_visible()
    check("repository")


def test_files_of_a_repository(page: Page) -> None:
    names = [
        "model-Q8_0.gguf", "UD/model-UD-Q4_K_XL-00002-of-00002.gguf", "UD/model-UD-Q4_K_XL-00001-of-00002.gguf",
        "lost-Q2_K-00001-of-00003.gguf", "Phi-3-mini-4k-instruct-q4.gguf", "mmproj-F16.gguf", "model.imatrix.gguf",
        "README.md", "plain.gguf", "mmproj-F32.gguf", "mmproj-BF16.gguf",
    ]  # fmt: skip
    found = page.evaluate(
        """async (names) => {
            const { modelFiles } = await import("/repo/app/hub/files.js");
            return modelFiles(names.map((rfilename, i) => ({ rfilename, size: 100 - i })), (path) => `at ${path}`);
        }""",
        names,
    )
    assert [(f["quantization"], f["size"], len(f["urls"])) for f in found] == [
        (None, 92, 1), ("Q4", 96, 1), ("Q8_0", 100, 1), ("Q4_K_XL", 197, 2),
    ]  # fmt: skip
    assert found[-1]["urls"] == [f"at {names[2]}", f"at {names[1]}"]
    assert found[-1]["sha256"] is None
    assert {f["projector"] for f in found} == {"at mmproj-F16.gguf"}


def test_the_best_file_is_the_most_exact_that_fits_and_is_fast_enough(page: Page) -> None:
    best = page.evaluate(
        """async () => {
            const { best, fitBySize } = await import("/repo/app/hub/fit.js");
            const files = [2.6, 4.8, 6.6, 8.5, 16].map((bits) => ({ name: `${bits}`, size: (bits * 4e9) / 8 }));
            const [, { size }] = files;
            const inspected = {
                verdict: "fits", backend: "webgpu", download: size, weights: size, context_length: 8192,
                total: size + 5e8, bytes_per_token: size, tokens_per_second: 20, budget: 16e9,
            };
            const choose = (change) => {
                const found = best(files, (file) => fitBySize({ ...inspected, ...change }, file.size), 4e9);
                return found?.name;
            };
            const changes = [
                {}, { tokens_per_second: 11 }, { budget: 3.2e9 }, { tokens_per_second: 1 }, { budget: 1e9 },
                { verdict: "unsupported" },
            ];
            return changes.map(choose);
        }"""
    )
    assert best == ["6.6", "4.8", "4.8", "4.8", "4.8", None]
