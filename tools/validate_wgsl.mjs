// Validates WGSL with Dawn, the WebGPU implementation of Chromium, on its null backend: no GPU, nothing runs.
// stdin: a line {label, code} per shader; stdout: a line {label, line, message, text} per error, and "done".
// Dawn itself writes a log to stdout and stderr, so each answer begins with a mark.
import { createInterface } from "node:readline";
import { create } from "webgpu";

const FEATURES = ["shader-f16", "subgroups", "chromium-experimental-subgroup-matrix"];

const gpu = create(["backend=null", "enable-dawn-features=allow_unsafe_apis"]);
const adapter = await gpu.requestAdapter();
const device = await adapter.requestDevice({ requiredFeatures: FEATURES });
device.pushErrorScope("validation"); // otherwise Dawn reports each error a second time
for await (const line of createInterface({ input: process.stdin })) {
  const { label, code } = JSON.parse(line);
  const { messages } = await device.createShaderModule({ code }).getCompilationInfo();
  for (const { type, lineNum, message } of messages) {
    if (type !== "error") continue;
    const text = code.split("\n")[lineNum - 1] ?? "";
    process.stdout.write(`\n#wgsl ${JSON.stringify({ label, line: lineNum, message, text })}\n`);
  }
}
process.stdout.write("\n#wgsl done\n");
process.kill(process.pid, "SIGKILL"); // Dawn's threads can deadlock when the process exits by itself
