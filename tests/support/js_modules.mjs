// Evaluates expressions over a bundle of modules, one after another (js_modules.py). It ends with its input.
// argv: the bundle; stdin, a line each: [code, arguments]; stdout, a line each: {value} or {error}.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const bundle = process.argv[2];
const load = new Function("require", readFileSync(bundle, "utf8"));
const require = createRequire(bundle);
const globals = Object.getOwnPropertyDescriptors(globalThis);

/** Gives the globals that a test has replaced their own values again, and deletes those that it has added. */
function restoreGlobals() {
  for (const name of Reflect.ownKeys(globalThis))
    if (!Object.hasOwn(globals, name)) Reflect.deleteProperty(globalThis, name); // Node's own dispatcher stays
  for (const name of Reflect.ownKeys(globals)) {
    const now = Object.getOwnPropertyDescriptor(globalThis, name);
    const same = now && ["value", "get", "set"].every((part) => Object.is(now[part], globals[name][part]));
    if (!same) Object.defineProperty(globalThis, name, globals[name]);
  }
}

async function answer(line) {
  const [code, args] = JSON.parse(line);
  try {
    for (const file of Object.keys(require.cache)) delete require.cache[file];
    load(require);
    const run = new Function("m", "a", `return (async () => (${code}))()`);
    return { value: (await run(globalThis.modules, args)) ?? null };
  } catch (error) {
    return { error: String(error?.stack ?? error) };
  } finally {
    restoreGlobals();
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await answer(line))}\n`);
}
process.exit(0); // an open port of a module would keep Node waiting
