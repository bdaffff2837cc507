"""What the browser takes for a dispatch, whatever its kernel computes: microseconds, medians of 9 passes.

.venv/bin/python -m bench.dispatches [--adapter lavapipe] [--count 2000]

A pass of `--count` dispatches without workgroups, or with one each, from the first command to the end on the GPU, with
1 to 8 storage buffers. `same`: the pipeline and the bind group are set once; `in turn`: eight of each, set for every
dispatch, as in a model's step.
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
  const usage = GPUBufferUsage.STORAGE;
  const buffers = Array.from({ length: 8 }, () => device.createBuffer({ size: 4096, usage }));
  const made = async (bindings, shift) => {
    const names = Array.from({ length: bindings }, (_, i) => `b${i}`);
    const declared = names.map((b, i) => `@group(0) @binding(${i}) var<storage, read_write> ${b}: array<u32>;`);
    const used = names.map((b) => `${b}[t] += ${1 + shift}u;`); // kernels that differ
    const code = `${declared.join(" ")}
      @compute @workgroup_size(64) fn main(@builtin(local_invocation_index) t: u32) { ${used.join(" ")} }`;
    const module = device.createShaderModule({ code });
    const pipeline = await device.createComputePipelineAsync({ layout: "auto", compute: { module } });
    const entries = names.map((_, i) => ({ binding: i, resource: { buffer: buffers[(i + shift) % 8] } }));
    return { pipeline, group: device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }) };
  };
  const pass = async (commands, workgroups) => {
    const begun = performance.now();
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    for (let i = 0; i < count; i++) {
      const { pipeline, group } = commands[i % commands.length];
      if (!i || commands.length > 1) {
        pass.setPipeline(pipeline);
        pass.setBindGroup(0, group);
      }
      pass.dispatchWorkgroups(workgroups);
    }
    pass.end();
    device.queue.submit([encoder.finish()]);
    await device.queue.onSubmittedWorkDone();
    return (1000 * (performance.now() - begun)) / count;
  };
  const rows = [];
  for (const bindings of [1, 3, 5, 8]) {
    const all = await Promise.all(buffers.map((_, i) => made(bindings, i)));
    for (const [how, commands] of Object.entries({ same: all.slice(0, 1), "in turn": all }))
      for (const workgroups of [0, 1]) {
        const times = [];
        for (let run = 0; run < 10; run++) times.push(await pass(commands, workgroups));
        const median = times.slice(1).sort((a, b) => a - b)[4]; // the first pass warms up
        rows.push([bindings, how, workgroups, median]);
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
        print(f"{bindings} bindings, {how:8} {workgroups} workgroups: {microseconds:6.2f} us")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
