"""The HTTP headers of every file of dist/: who may load what, and who may show the page.

A host that sends none still gets the policy of the pages' own <meta>, PAGE_CSP; only frame-ancestors does not work
there (app/ui/unframed.js). Hosts that read a _headers file, such as Netlify and Cloudflare Pages, get all of them.
artifact.html, which shows what a model wrote, and code.html, which runs it, have policies of their own: scripts, but no
address.
"""

from collections.abc import Iterable

PAGE_CSP = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data: blob:; "
    "media-src 'self' data: blob:; connect-src 'self' blob: https: http://127.0.0.1:* http://localhost:*; "
    "worker-src 'self'; manifest-src 'self'; font-src 'self'; frame-src 'self'; "
    "base-uri 'none'; form-action 'none'"
)
CSP = f"{PAGE_CSP}; frame-ancestors 'none'"
ARTIFACT_PAGE_CSP = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:; "
    "media-src data: blob:; base-uri 'none'; form-action 'none'"
)
# Workers and modules are blobs, which the page hands in; Python is WebAssembly.
CODE_PAGE_CSP = (
    "default-src 'none'; script-src 'unsafe-inline' 'wasm-unsafe-eval' blob:; worker-src blob:; base-uri 'none'; "
    "form-action 'none'"
)
SANDBOXES = {"artifact.html": ARTIFACT_PAGE_CSP, "code.html": CODE_PAGE_CSP}  # pages of what a model wrote
HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


IMMUTABLE = "public, max-age=31536000, immutable"  # below assets/: names have a hash of their content
REVALIDATED = "no-cache"  # all others


def headers_of(name: str) -> dict[str, str]:
    """Return the headers of the file of dist/ with that name."""
    if name not in SANDBOXES:
        return HEADERS
    policy = f"{SANDBOXES[name]}; frame-ancestors 'self'"
    return {**HEADERS, "Content-Security-Policy": policy, "Connection-Allowlist": "()"}  # () also ends WebRTC


def headers_file(paths: Iterable[str]) -> str:
    """Return the _headers file for the files of dist/. No file matches two entries, whose policies would add up."""
    tops = sorted({path if "/" not in path else f"{path.partition('/')[0]}/*" for path in paths})
    pages = [name for path in tops for name in _addresses(path)]
    lines = []
    for address, name in [("/", "index.html"), *pages]:
        caching = {"Cache-Control": IMMUTABLE if address == "/assets/*" else REVALIDATED}
        lines += [address, *(f"  {header}: {value}" for header, value in {**headers_of(name), **caching}.items())]
    return "\n".join(lines) + "\n"


def _addresses(path: str) -> list[tuple[str, str]]:
    """The addresses of a file: some hosts drop ".html"."""
    names = [path, path.removesuffix(".html")] if path.endswith(".html") else [path]
    return [(f"/{name}", path) for name in names]


def with_policy(page: str, policy: str = PAGE_CSP) -> str:
    """Return a page of HTML with a policy, before anything that it governs."""
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}" />'
    assert "<head>" in page
    return page.replace("<head>", f"<head>\n    {meta}", 1)
