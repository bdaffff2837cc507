// How app/answers/grammar.js itself caches the tokens of forced texts; a token is a character.
// stdin: {module, grammar, looser, exact}; stdout: for each forced text of an answer [text, were its tokens known?, does another
// answer with the same text know them then?, does the grammar accept them in both?].
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const { module: file, grammar, looser, exact } = JSON.parse(readFileSync(0, "utf8"));
Object.assign(globalThis, { require: createRequire(file), __filename: file, __dirname: "" }); // the mask engine is no ES module
const { open } = await import(pathToFileURL(grammar).href);
const pieces = [...Array.from({ length: 128 }, (_, code) => String.fromCharCode(code)), "<end>"];
const stop = pieces.length - 1;
const ends = pieces.map((_, i) => i + 1);
ends[stop] = stop; // hidden
const compiler = await open(
  new Uint8Array(128).map((_, i) => i),
  Uint32Array.from(ends),
  pieces.length,
  [stop],
);
const compiled = await compiler.compile(looser, exact);
const [first, second] = [await compiled.matcher(), await compiled.matcher()];
const found = [];
while (!first.finished()) {
  const text = first.forced();
  const ids = [...text].slice(0, -1).map((char) => char.charCodeAt(0));
  const before = first.forcedIds();
  if (text.length > 1) first.cacheForced(text, ids);
  const after = second.forcedIds();
  const fits = ids.every((id) => first.accept(id)) && ids.every((id) => second.accept(id));
  if (text.length > 1) found.push([text, before !== undefined, after?.join() === ids.join(), fits]);
  const mask = await first.mask();
  const next = ['"', ...pieces].findIndex(
    (piece) => (mask[piece.charCodeAt(0) >> 5] >>> (piece.charCodeAt(0) & 31)) & 1,
  );
  const token = next ? next - 1 : '"'.charCodeAt(0);
  if (!first.accept(token) || !second.accept(token)) throw new Error(`it rejects ${token}`);
  await first.mask(); // or it is not known whether only the end may follow
}
process.stdout.write(JSON.stringify(found));
