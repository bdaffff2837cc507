// Whether a stop token that has a text ends an answer, in app/answers/grammar.js itself.
// stdin: {module, grammar, looser, exact}; stdout: [may it end within the string? may the string end? may the answer end then?].
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const { module: file, grammar, looser, exact } = JSON.parse(readFileSync(0, "utf8"));
Object.assign(globalThis, { require: createRequire(file), __filename: file, __dirname: "" }); // the mask engine is no ES module
const { open } = await import(pathToFileURL(grammar).href);
const pieces = [...Array.from({ length: 128 }, (_, code) => String.fromCharCode(code)), "<|call|>"];
const stop = pieces.length - 1;
const ends = pieces.map((_, i) => i + 1);
ends[stop] += pieces[stop].length - 1;
const bytes = new TextEncoder().encode(pieces.join(""));
const compiler = await open(bytes, Uint32Array.from(ends), pieces.length, [stop]);
const matcher = await (await compiler.compile(looser, exact)).matcher();
matcher.acceptText('"text');
const found = [matcher.tryAccept(stop), matcher.acceptText('"'), matcher.tryAccept(stop)];
process.stdout.write(JSON.stringify(found));
