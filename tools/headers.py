"""The HTTP headers of every file of dist/: who may load what, and who may show the page.

A host that sends none still gets the policy of the pages' own <meta>, PAGE_CSP; only frame-ancestors does not work
there (app/ui/unframed.js). Hosts that read a _headers file, such as Netlify and Cloudflare Pages, get all of them.
"""

PAGE_CSP = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self' https: http://127.0.0.1:* http://localhost:*; worker-src 'self'; manifest-src 'self'; "
    "base-uri 'none'; form-action 'none'"
)
CSP = f"{PAGE_CSP}; frame-ancestors 'none'"
HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def headers_file() -> str:
    """Return the _headers file."""
    return "\n".join(["/*", *(f"  {name}: {value}" for name, value in HEADERS.items())]) + "\n"


def with_policy(page: str) -> str:
    """Return a page of HTML with PAGE_CSP, before anything that it governs."""
    meta = f'<meta http-equiv="Content-Security-Policy" content="{PAGE_CSP}" />'
    assert "<head>" in page
    return page.replace("<head>", f"<head>\n    {meta}", 1)
