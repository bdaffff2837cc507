"""The page on a GPU that computes wrong: it says so in a line, and answers on the CPU."""

from collections.abc import Callable

from playwright.sync_api import Browser, Route, expect

from tests.support.browser import new_profile
from tests.support.chat_page import ask, wait_ready
from tools.serve import Server

LOAD_MS = 400_000  # a software GPU compiles every kernel, and those that tuning compares
# What the worker runs first: the software GPU passes for a real one, and its compiler loses half of a kernel's input.
WRONG_GPU = """
for (const name of ["vendor", "architecture", "device", "description"])
  Object.defineProperty(GPUAdapterInfo.prototype, name, { get: () => "test" });
Object.defineProperty(GPUAdapterInfo.prototype, "isFallbackAdapter", { get: () => false });
const right = GPUDevice.prototype.createShaderModule;
GPUDevice.prototype.createShaderModule = function (descriptor) {
  const code = descriptor.code.replaceAll("gated(x[at], x[at + COLS])", "gated(x[at], x[at])");
  return right.call(this, { ...descriptor, code });
};
"""


def test_a_notice_names_the_wrong_kernel(chromium: Callable[[str | None], Browser], server: Server) -> None:
    context = new_profile(chromium("swiftshader"), service_workers="block")
    context.add_init_script("delete globalThis.SharedWorker;")

    def prepend(route: Route) -> None:
        response = route.fetch()
        route.fulfill(response=response, body=WRONG_GPU + response.text())

    context.route("**/assets/worker-*.js", prepend)
    page = context.new_page()
    page.goto(server.url)
    notice = page.locator("#notices")
    expect(notice).to_contain_text("The kernel activate does not work on this GPU", timeout=LOAD_MS)
    expect(notice).to_contain_text("The model runs on the CPU, which is slower.")
    wait_ready(page)
    assert "Rome" in ask(page, "What is the capital of Italy?")
    context.close()
