"""What the browser takes for a dispatch, whatever its kernel computes: microseconds, medians of 15 passes by turns.

.venv/bin/python -m bench.dispatches [--adapter lavapipe] [--count 2000]

A pass of `--count` dispatches without workgroups, or with one each, from the first command to the end on the GPU, with
1 to 8 storage buffers:
    same                the pipeline and the bind group are set once
    in turn             eight pipelines and bind groups with a uniform buffer, set for each dispatch, as in a model
    without parameters  the same without the uniform buffers
    immediates          the same with immediate data in their place, where the browser has it
    one group           eight pipelines, and a bind group that all share and that is set once
"""

import argparse
import sys

from playwright.sync_api import sync_playwright

from bench.headless import launched
from tools import dist
from tools.serve import Server

MEASURE = """async (count) => {
  const adapter = await navigator.gpu.requestAdapter();
  if (!adapter) throw new Error("The browser has no WebGPU adapter.");
  const device = await adapter.requestDevice();
  const { STORAGE, UNIFORM } = GPUBufferUsage;
  const buffers = Array.from({ length: 8 }, () => device.createBuffer({ size: 4096, usage: STORAGE }));
  const uniforms = device.createBuffer({ size: 8 * 256, usage: UNIFORM });
  const immediates = new Uint32Array(8);
  const PARAMS = "struct Params { a: u32, b: u32, c: u32, d: u32, e: u32, f: u32, g: u32, h: u32 }";
  const DECLARED = {
    uniform: (bindings) => `${PARAMS} @group(0) @binding(${bindings}) var<uniform> p: Params;`,
    immediates: () => `${PARAMS} var<immediate> p: Params;`,
    none: () => "",
  };
  const made = async (bindings, kind, shift, layout = "auto") => {
    const names = Array.from({ length: bindings }, (_, i) => `b${i}`);
    const declared = names.map((b, i) => `@group(0) @binding(${i}) var<storage, read_write> ${b}: array<u32>;`);
    const term = kind === "none" ? "" : " + p.a + p.h";
    const used = names.map((b) => `${b}[t] += ${1 + shift}u${term};`); // kernels that differ
    const code = `${kind === "immediates" ? "requires immediate_address_space;" : ""}
      ${DECLARED[kind](bindings)} ${declared.join(" ")}
      @compute @workgroup_size(64) fn main(@builtin(local_invocation_index) t: u32) { ${used.join(" ")} }`;
    const module = device.createShaderModule({ code });
    const pipeline = await device.createComputePipelineAsync({ layout, compute: { module } });
    const entries = names.map((_, i) => ({ binding: i, resource: { buffer: buffers[(i + shift) % 8] } }));
    if (kind === "uniform")
      entries.push({ binding: bindings, resource: { buffer: uniforms, offset: 256 * shift, size: 32 } });
    const group = device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries });
    return { pipeline, group, immediates: kind === "immediates" && immediates };
  };
  const pass = async ({ commands, once }, workgroups) => {
    const begun = performance.now();
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    for (let i = 0; i < count; i++) {
      const { pipeline, group, immediates } = commands[i % commands.length];
      if (!i || commands.length > 1) pass.setPipeline(pipeline);
      if (!i || (commands.length > 1 && !once)) pass.setBindGroup(0, group);
      if (immediates) pass.setImmediates(0, immediates);
      pass.dispatchWorkgroups(workgroups);
    }
    pass.end();
    device.queue.submit([encoder.finish()]);
    await device.queue.onSubmittedWorkDone();
    return (1000 * (performance.now() - begun)) / count;
  };
  const rows = [];
  for (const bindings of [1, 3, 5, 8]) {
    const all = (kind, layout) => Promise.all(buffers.map((_, i) => made(bindings, kind, i, layout)));
    const entries = Array.from({ length: bindings }, (_, binding) => ({
      binding,
      visibility: GPUShaderStage.COMPUTE,
      buffer: { type: "storage" },
    }));
    const layout = device.createPipelineLayout({ bindGroupLayouts: [device.createBindGroupLayout({ entries })] });
    const ways = { "in turn": { commands: await all("uniform") } };
    ways.same = { commands: ways["in turn"].commands.slice(0, 1) };
    ways["without parameters"] = { commands: await all("none") };
    if (navigator.gpu.wgslLanguageFeatures.has("immediate_address_space"))
      ways.immediates = { commands: await all("immediates") };
    ways["one group"] = { commands: await all("none", layout), once: true };
    for (const workgroups of [0, 1]) {
      const times = new Map(Object.keys(ways).map((way) => [way, []]));
      for (let run = 0; run < 16; run++)
        for (const [way, found] of times) found.push(await pass(ways[way], workgroups));
      for (const [way, found] of times)
        rows.push([bindings, way, workgroups, found.slice(1).sort((a, b) => a - b)[7]]); // the first pass warms up
    }
  }
  return rows;
}"""


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.dispatches", description="Time the browser's dispatches.")
    parser.add_argument("--adapter", choices=["swiftshader", "lavapipe"], help="a software GPU")
    parser.add_argument("--count", type=int, default=2000, help="dispatches of a pass (default: 2000)")
    options = parser.parse_args(arguments)
    server = Server(dist.made(), 0).start()
    try:
        with sync_playwright() as playwright, launched(playwright, options.adapter) as browser:
            page = browser.new_page()
            page.goto(f"{server.url}notices.html")
            rows = page.evaluate(MEASURE, options.count)
    finally:
        server.shutdown()
        server.server_close()
    for bindings, how, workgroups, microseconds in rows:
        print(f"{bindings} bindings, {how:18} {workgroups} workgroups: {microseconds:6.2f} us")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
