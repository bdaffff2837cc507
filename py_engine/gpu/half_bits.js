/** Whether the browser's WGSL compiler has bitcast<vec2<f16>>. Firefox's has not, and does not compile kernels that use it. */
import { requestAdapter } from "./adapter.js";

const CODE = `
enable f16;
@group(0) @binding(0) var<storage, read_write> out: vec2f;
@compute @workgroup_size(1)
fn main() {
  out = vec2f(bitcast<vec2<f16>>(0x3c003c00u) + vec2<f16>(1));
}`;

/** @type {Promise<boolean> | undefined} */
let found;

/** Tried once, with a device of its own. @returns {Promise<boolean>} true if the adapter has no f16 */
export function makesHalfBits() {
  return (found ??= tried().catch(() => ((found = undefined), false)));
}

async function tried() {
  const adapter = await requestAdapter();
  if (!adapter.features.has("shader-f16")) return true;
  const device = await adapter.requestDevice({ requiredFeatures: ["shader-f16"] });
  device.pushErrorScope("validation"); // or the console shows the error
  const { messages } = await device.createShaderModule({ code: CODE }).getCompilationInfo();
  await device.popErrorScope();
  device.destroy();
  return !messages.some((/** @type {any} */ { type }) => type === "error");
}
