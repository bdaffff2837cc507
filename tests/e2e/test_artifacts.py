"""What a model wrote runs in a preview, and reaches nothing: no network, no storage, no other page."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.answers import open_answers, preview, show
from tests.support.browser import new_profile
from tests.support.listener import Listener
from tests.support.waiting import HANG_S, wait_for
from tests.support.webrtc_frame import SHOWN
from tools.paths import ROOT
from tools.serve import Server


@pytest.fixture
def listener() -> Iterator[Listener]:
    """One for each test: what a page has asked for may arrive after its test."""
    opened = Listener()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def open_page(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[Callable[[], Page]]:
    """open_page() -> a page that shows answers, without an engine."""
    context = new_profile(chromium(None))

    yield lambda: open_answers(context, server.url)
    context.close()


@pytest.fixture(scope="module")
def page(open_page: Callable[[], Page]) -> Page:
    return open_page()


# Each attempt is an expression; what it throws or resolves to is written into the preview.
ATTEMPTS = {
    "fetch": "fetch(HTTP + 'fetch', { mode: 'no-cors' })",
    "own server": "fetch(OWN + 'index.html', { mode: 'no-cors' })",
    "relative": "fetch('/index.html')",
    "XMLHttpRequest": "new Promise((ok, no) => { const x = new XMLHttpRequest(); x.open('GET', HTTP + 'xhr'); "
    "x.onload = ok; x.onerror = no; x.send() })",
    "beacon": "navigator.sendBeacon(HTTP + 'beacon', 'x') && new Promise((ok, no) => setTimeout(no, 300))",
    "WebSocket": "new Promise((ok, no) => { const s = new WebSocket(HTTP.replace('http', 'ws')); s.onopen = ok; "
    "s.onerror = no })",
    "EventSource": "new Promise((ok, no) => { const s = new EventSource(HTTP); s.onopen = ok; s.onerror = no })",
    "image": "loaded('img', { src: HTTP + 'img' })",
    "own image": "loaded('img', { src: OWN + 'assets/none.png' })",
    "script": "loaded('script', { src: HTTP + 'script' })",
    "style sheet": "loaded('link', { rel: 'stylesheet', href: HTTP + 'css' })",
    "prefetch": "loaded('link', { rel: 'prefetch', href: HTTP + 'prefetch' })",
    "preload": "loaded('link', { rel: 'preload', as: 'fetch', href: HTTP + 'preload' })",
    "module preload": "loaded('link', { rel: 'modulepreload', href: HTTP + 'modulepreload' })",
    "media": "loaded('video', { src: HTTP + 'video' })",
    "object": "loaded('object', { data: HTTP + 'object' })",
    "embed": "loaded('embed', { src: HTTP + 'embed' })",
    "import": "import(HTTP + 'import')",
    "worker": "new Promise((ok, no) => { const w = new Worker(URL.createObjectURL(new Blob(['postMessage(1)']))); "
    "w.onmessage = ok; w.onerror = no })",
    "font": "new FontFace('f', `url(${HTTP}font)`).load()",
    "localStorage": "localStorage.length",
    "sessionStorage": "sessionStorage.length",
    "cookie": "document.cookie.length",
    "IndexedDB": "new Promise((ok, no) => { const r = indexedDB.open('x'); r.onsuccess = ok; r.onerror = no })",
    "caches": "caches.keys()",
    "OPFS": "navigator.storage.getDirectory()",
    "service worker": "navigator.serviceWorker.getRegistrations()",
    "parent's document": "parent.document.title",
    "top's document": "top.document.title",
    "top's address": "top.location.href",
    "popup": "window.open(HTTP + 'popup') || Promise.reject('no window')",
    "dialog": "alert('x') ?? Promise.reject('nothing was shown')",
}
# Each of these has no result of its own: whether it reached something is seen elsewhere.
# Whether these reached something is seen by the listener and in the page.
PEERS = """
  const call = (world) => {
    const peer = new world.RTCPeerConnection({ iceServers: [{ urls: `stun:127.0.0.1:${PORT}` },
      { urls: `turn:127.0.0.1:${PORT}?transport=tcp`, username: "u", credential: "c" }] });
    peer.createDataChannel("x");
    peer.createOffer().then((offer) => peer.setLocalDescription(offer)).catch(() => {});
  };
  const inner = document.body.appendChild(document.createElement("iframe")); // with objects of its own
  attempt(() => call(window));
  attempt(() => call(inner.contentWindow));
"""
NAVIGATIONS = """
  const form = document.body.appendChild(document.createElement("form"));
  form.action = HTTP + "form";
  attempt(() => form.submit());
  attempt(() => (top.location = HTTP + "top"));
  attempt(() => (parent.location = HTTP + "parent"));
  attempt(() => parent.postMessage({ artifact: "<p id=forged>forged" }, "*"));
  attempt(() => top.postMessage("artifact page is ready", "*"));
  attempt(() => document.body.append(Object.assign(document.createElement("iframe"), { src: HTTP + "frame" })));
  attempt(() => document.body.append(Object.assign(document.createElement("a"), { href: HTTP + "a", ping: HTTP + "ping",
    target: "_blank" })));
  attempt(() => document.querySelector("a").click());
  document.head.insertAdjacentHTML("beforeend", `<meta http-equiv="refresh" content="0;url=${HTTP}refresh">`);
  attempt(() => (location.href = HTTP + "navigation"));
  attempt(() => (location.href = OWN + "?navigation"));
"""
HOSTILE = """<!doctype html><p id="results">running</p><script>
const HTTP = "http://127.0.0.1:%(port)d/", OWN = "%(own)s", PORT = %(port)d;
const attempt = (what) => { try { what(); } catch {} };
const loaded = (name, props) => new Promise((ok, no) => {
  const element = Object.assign(document.createElement(name), props, { onload: ok, onloadeddata: ok, onerror: no });
  document.body.append(element);
  setTimeout(no, 1500);
});
const attempts = { %(attempts)s };
(async () => {
  const reached = [];
  await Promise.all(Object.entries(attempts).map(async ([name, run]) => {
    try { await run(); reached.push(name); } catch {}
  }));
  %(peers)s
  await new Promise((resolve) => setTimeout(resolve, 1500));
  document.querySelector("#results").textContent = "reached: " + JSON.stringify(reached);
})();
document.onclick = () => { document.onclick = null; %(navigations)s };
</script>"""


def hostile(port: int, own: str) -> str:
    """A document that tries everything."""
    attempts = ", ".join(f"{json.dumps(name)}: async () => await ({code})" for name, code in ATTEMPTS.items())
    values = {"port": port, "own": own, "attempts": attempts, "peers": PEERS, "navigations": NAVIGATIONS}
    return HOSTILE % values


def test_a_preview_reaches_nothing(page: Page, listener: Listener, server: Server) -> None:
    responses: list[str] = []  # a request that the policy stops may be announced, but has none
    page.context.on("response", lambda response: responses.append(response.url))
    frame = preview(page, "html", hostile(listener.port, server.url))
    expect(frame.locator("#results")).to_have_text("reached: []")
    frame.locator("#results").click()
    expect(frame.locator("#results")).to_have_count(0)  # it left for an address that the policy forbids
    assert listener.reached == []
    assert [url for url in responses if url.startswith(server.url)] == [f"{server.url}artifact.html"]
    assert (page.url, len(page.context.pages)) == (f"{server.url}tests/blank.html", 1)
    assert page.locator("#forged").count() == 0


def test_webrtc_in_a_frame_of_a_preview_reaches_nothing(listener: Listener, server: Server) -> None:
    command = [sys.executable, "-m", "tests.support.webrtc_frame", server.url, str(listener.port)]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert SHOWN in shown.stdout, shown.stderr[-2000:]
    assert listener.reached == []


def test_the_same_document_reaches_all_of_it_in_a_plain_page(
    chromium: Callable[[str | None], Browser], listener: Listener, server: Server
) -> None:
    """Else the test above would prove nothing."""
    context = new_profile(chromium(None))
    plain = context.new_page()
    listener.page = hostile(listener.port, server.url)
    plain.on("dialog", lambda dialog: dialog.dismiss())
    plain.goto(f"http://127.0.0.1:{listener.port}/")
    expect(plain.locator("#results")).to_contain_text("reached")
    reached = json.loads(plain.locator("#results").inner_text().partition(": ")[2])
    assert {"localStorage", "sessionStorage", "cookie", "IndexedDB", "caches", "worker", "top's address"} <= set(
        reached
    )
    names = ("fetch", "xhr", "img", "script", "css", "prefetch", "video", "embed", "import", "font")
    noticed = [*(f"GET /{name} " for name in names), "POST /beacon ", "udp"]
    wait_for(lambda: all(part in " ".join(listener.reached) for part in noticed))
    context.close()


def test_svg_is_shown_as_a_picture_which_reaches_nothing(page: Page, listener: Listener) -> None:
    address = f"http://127.0.0.1:{listener.port}/svg"
    parts = f"""<image href="{address}" width="9" height="9"/><style>@import "{address}";</style>
        <circle cx="4" cy="4" r="3" fill="url({address}#a)"/><use href="{address}#b"/>"""
    namespace = 'xmlns="http://www.w3.org/2000/svg"'
    for start in (f"<svg {namespace}", "<svg", "<svg checked"):  # models leave out what HTML does without
        body = show(page, f'```svg\n{start} width="50" height="20">{parts}<title>A dot</title></svg>\n```')
        expect(body.get_by_role("img", name="A dot")).to_have_js_property("naturalWidth", 50)
        expect(body.locator("code")).to_be_hidden()
    body.get_by_role("button", name="Code", exact=True).click()
    expect(body.locator("code")).to_be_visible()
    expect(body.get_by_role("img")).to_have_count(0)
    assert listener.reached == []


COPIES = "".join(
    f'<g id="g{n}">' + f'<use href="#g{n - 1}"/>' * 10 + "</g>" if n else '<circle id="g0" r="1"/>' for n in range(7)
)
MARKED = '<marker id="m"><g>' + "<circle/>" * 99 + '</g></marker><path marker-mid="url(#m)" d="' + "l1 1" * 900 + '"/>'
COSTLY = {
    "copies of copies": f'<defs>{COPIES}</defs><use href="#g6"/>',
    "old links": f'<defs>{COPIES.replace("href", "xlink:href")}</defs><use xlink:href="#g6"/>',
    "a circle of copies": '<g id="a"><use href="#b"/></g><g id="b"><use href="#a"/></g>',
    "markers": MARKED,
    "many filters": '<filter id="f"><feGaussianBlur/></filter>' + '<rect filter="url(#f)"/>' * 99,
    "references in a style": "<style>rect { fill: url(#p) }</style><rect/>",
    "an escape": "<style>rect { fill: u\\72l(#p) }</style><rect/>",
    "a picture in it": '<image href="data:image/png;base64,AA=="/>',
    "deep groups": "<g>" * 20_000,
    # Up to minutes of painting, of a kilobyte or two.
    "large matrices": '<filter id="f"><feConvolveMatrix order="50"/></filter>' + '<rect filter="url(#f)"/>' * 5,
    "many steps of a filter": f'<filter id="f">{"<feColorMatrix/>" * 99}</filter><rect filter="url(#f)"/>',
    "a wide filter": '<filter id="f"><feMorphology radius="99"/></filter><rect filter="url(#f)"/>',
    "filters of a style": f'<rect style="fill:red; filter:{"blur(20px) " * 9}"/>',
    "filters of an attribute": '<rect filter="blur(20px)"/>',
    "filters of a rule": "<style>rect { filter: blur(20px) }</style><rect/>",
    "a filter that grows": '<filter><feGaussianBlur><animate attributeName="stdDeviation"/></feGaussianBlur></filter>',
    "a copy of another element later": '<use href="#a"><set attributeName="href" to="#b"/></use>',
    "a picture of a filter": '<g id="a">'
    + "<rect/>" * 9_000
    + '</g><filter id="f"><feImage href="#a"/></filter>'
    + '<rect filter="url(#f)"/>' * 2,
    "masks": '<mask id="m"><rect/></mask>' + '<rect mask="url(#m)"/>' * 500,
    "blended groups": '<g style="mix-blend-mode: hue"><rect/></g>' * 500,
    "faded groups": '<g opacity="0.5"><rect/></g>' * 2_000,
    "groups that a rule fades": "<style>g { opacity: 0.5 }</style>" + "<g><rect/></g>" * 2_000,
}
# The parser took 14 s to refuse 200 KB of these.
ENTITIES = f'<!DOCTYPE svg [<!ENTITY a "{"x" * 99}">]><svg xmlns="http://www.w3.org/2000/svg"><text>&a;</text></svg>'
USUAL = {
    "copies": '<linearGradient id="l"/><g id="a"><rect fill="url(#l)"/></g>' + '<use href="#a"/>' * 50,
    "filters": '<filter id="f"><feGaussianBlur/><feOffset/><feMerge><feMergeNode/><feMergeNode/></feMerge></filter>'
    + '<rect filter="url(#f)"/><rect style="fill: red; filter: url(#f)"/>' * 4,
    "rules and comments": "<style>/* dots */ .a { fill: red; opacity: 0.5 }</style>" + '<circle class="a"/>' * 99,
    "a pulse": '<circle r="3"><animate attributeName="opacity" values="0;1" dur="1s"/></circle>',
    "parts": '<clipPath id="c"><rect/></clipPath>' + '<g clip-path="url(#c)" opacity="0.5"><rect/></g>' * 9,
}


@pytest.mark.parametrize("name", COSTLY)
def test_svg_that_would_block_the_page_waits_for_a_press(page: Page, name: str) -> None:
    body = show(page, f"```svg\n<svg viewBox='0 0 9 9'>{COSTLY[name]}</svg>\n```")
    expect(body.get_by_role("button", name="Preview")).to_be_visible()
    expect(body.locator("img")).to_have_count(0)


def test_several_drawings_wait_for_a_press_and_are_all_shown(page: Page) -> None:
    drawing = '<svg viewBox="0 0 9 9"><circle r="3"/></svg>'
    frame = preview(page, "svg", drawing * 2)
    expect(frame.locator("svg")).to_have_count(2)


def test_svg_with_names_for_texts_waits_for_a_press(page: Page) -> None:
    body = show(page, f"```svg\n{ENTITIES}\n```")
    expect(body.get_by_role("button", name="Preview")).to_be_visible()
    expect(body.locator("img")).to_have_count(0)


@pytest.mark.parametrize("name", USUAL)
def test_a_usual_drawing_is_a_picture(page: Page, name: str) -> None:
    body = show(page, f"```svg\n<svg viewBox='0 0 9 9'>{USUAL[name]}</svg>\n```")
    expect(body.locator("img")).to_have_count(1)


def test_a_drawing_that_ends_twice_has_one_picture(page: Page) -> None:
    """Once at the end of its code, and once at the end of the answer."""
    text = '```svg\n<svg viewBox="0 0 9 9"><rect/></svg>\n```\n\nA drawing'
    body = show(page, text, growing=True)
    page.evaluate("(text) => shown.render(text)", text)
    expect(body.locator("img")).to_have_count(1)


def test_svg_that_acts_waits_for_a_press_and_runs_in_a_frame(page: Page) -> None:
    code = '<svg viewBox="0 0 9 9"><circle cx="4" cy="4" r="3"/><script>document.title = "x"</script></svg>'
    frame = preview(page, "svg", code)
    expect(frame.locator("circle")).to_be_visible()


def test_previews_follow_the_colours_of_the_page(page: Page) -> None:
    """Documents that name colours were made for white: they stay as they are."""
    background = "(element) => getComputedStyle(element.ownerDocument.documentElement).backgroundColor"
    dark = "rgb(24, 32, 38)"
    try:
        page.emulate_media(color_scheme="dark")
        frame = preview(page, "html", "<h1>Plain</h1>")
        assert frame.locator("h1").evaluate(background) == dark
        page.emulate_media(color_scheme="light")
        expect(frame.locator("h1")).to_have_css("color", "rgb(0, 0, 0)")
        page.emulate_media(color_scheme="dark")
        expect(frame.locator("h1")).to_have_css("color", "rgb(230, 235, 234)")
        frame = preview(page, "html", "<style>body { background: #eee }</style><h1>Grey</h1>")
        expect(frame.locator("h1")).to_have_css("color", "rgb(0, 0, 0)")
        assert frame.locator("h1").evaluate(background) != dark
        frame = preview(page, "mermaid", "graph TD; A[Start here]")
        assert frame.locator("svg .node").first.evaluate(background) == dark
    finally:
        page.emulate_media(color_scheme="light")


@pytest.mark.parametrize(
    ("language", "name"),
    [("python", "code.py"), ("C++", "code.cpp"), ("css", "code.css"), ("", "code.txt"), ("../x", "code.txt"),
     ("Dockerfile", "Dockerfile"), ("constructor", "code.txt")],
)  # fmt: skip
def test_code_is_saved_as_a_file(page: Page, language: str, name: str) -> None:
    body = show(page, f"```{language}\nfirst\nsecond\n```")
    with page.expect_download() as download:
        body.get_by_role("button", name="Save the code as a file").click()
    assert download.value.suggested_filename == name
    assert Path(download.value.path()).read_text(encoding="utf-8") == "first\nsecond\n"


def test_diagrams_are_drawn(page: Page) -> None:
    frame = preview(page, "mermaid", "graph TD; A[Start here] --> B[</script><!--]")
    expect(frame.locator("svg .node").first).to_contain_text("Start here")
    page.get_by_role("button", name="Code", exact=True).click()
    expect(page.locator(".artifact-frame")).to_have_count(0)
    expect(page.locator("#answer code")).to_be_visible()
    frame = preview(page, "mermaid", "graph TD; A[")
    expect(frame.locator("#diagram")).to_contain_text("The diagram has a mistake.")


def test_a_script_in_a_preview_runs(page: Page) -> None:
    code = "<button onclick=\"this.textContent = 'pressed'\">press</button><script>document.title = 'x'</script>"
    frame = preview(page, "html", code)
    frame.get_by_role("button", name="press").click()
    expect(frame.get_by_role("button")).to_have_text("pressed")
    assert show(page, "```python\nprint()\n```").get_by_role("button", name="Preview").count() == 0
