// Random texts of forms whose strings have limits: at each token, the looser grammar's narrowed mask beside the exact
// grammar's own. stdin: {module, limits, jobs: [{looser, exact, walks}]}; stdout: for each job {masks, narrowed, ended, free,
// differ}. `free`: masks of free text.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { BYTES, load } from "./xgrammar.mjs";

const { module: file, limits, jobs } = JSON.parse(readFileSync(0, "utf8"));
const { TokenizerInfo, GrammarCompiler, Grammar, GrammarMatcher } = load(file);
const { ExactText, StringLengths } = await import(pathToFileURL(limits).href);

let seed = 7;
const random = (n) => Math.floor(((seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) / 2 ** 32) * n);
const encoder = new TextEncoder();
const WORDS = [
  "x",
  "ab",
  "the",
  "ing ",
  "hello",
  "\\",
  '"',
  "u00",
  "\\n",
  "\\u",
  "\\u00",
  "\\u00e9",
  "\\ud83d",
  "\\ud83d\\ude",
  "\\ude00",
  "é",
  "本",
  "😀",
  '","',
  '"]',
  '"}',
  ' "',
  '"a',
  '": "',
  "e9x",
  "nabc",
  "d",
  "D",
  "c",
  "00",
  "{",
  '{"a":"',
  '",',
];
const tokens = [...BYTES, ...WORDS.map((word) => encoder.encode(word))];
for (let i = 0; i < 500; i++) {
  const parts = Array.from({ length: 2 + random(5) }, () => WORDS[random(WORDS.length)]);
  const joined = encoder.encode(parts.join(""));
  tokens.push(joined.subarray(random(2) && joined[0] >= 0x80 ? 1 : 0, joined.length - random(2)));
}
for (const n of [17, 31, 33, 40]) tokens.push(encoder.encode("y".repeat(n)), encoder.encode(`"${"z".repeat(n)}`));
for (let i = 256; i < tokens.length; i++)
  if (tokens[i].some((byte) => !BYTES[byte].length)) tokens[i] = new Uint8Array();
const END = tokens.length;
const compilerOf = async (vocabulary) => {
  const list = [...vocabulary, encoder.encode("</s>")];
  const info = await TokenizerInfo.createTokenizerInfo(list, "raw", false, list.length, [vocabulary.length]);
  return GrammarCompiler.createGrammarCompiler(info, false);
};
const compiler = await compilerOf(tokens);
const ofBytes = await compilerOf(BYTES);
const compile = async (by, text) => by.compileGrammar(await Grammar.fromEBNF(text));
const lengths = new StringLengths(END + 1, (token) => tokens[token] ?? new Uint8Array());
const has = (mask, token) => ((mask[token >> 5] >>> (token & 31)) & 1) === 1;

async function compare({ looser, exact, walks }) {
  const loose = await compile(compiler, looser);
  const whole = await compile(compiler, exact);
  const small = await compile(ofBytes, exact);
  const found = { masks: 0, narrowed: 0, ended: 0, free: 0, differ: [] };
  for (let walk = 0; walk < walks; walk++) {
    const looseMatcher = await GrammarMatcher.createGrammarMatcher(loose);
    const wanted = await GrammarMatcher.createGrammarMatcher(whole);
    const text = new ExactText(await GrammarMatcher.createGrammarMatcher(small), looseMatcher, lengths);
    let written = "";
    for (let step = 0; step < 200; step++) {
      const wide = Int32Array.from(await looseMatcher.getNextTokenBitmask());
      const mask = text.narrowed(wide);
      const right = await wanted.getNextTokenBitmask();
      found.masks++;
      const all = [...Array(END).keys()];
      const banned = new Set(all.filter((token) => text.isBanned(token)));
      if (!banned.size) found.free++;
      if (all.some((token) => has(wide, token) && !has(mask, token) && !banned.has(token))) found.narrowed++;
      const wrong = all.filter((token) => has(mask, token) !== (has(right, token) && !banned.has(token)));
      if (wrong.length && found.differ.length < 5)
        found.differ.push([
          written,
          wrong.slice(0, 5).map((token) => [Buffer.from(tokens[token]).toString("latin1"), has(mask, token)]),
        ]);
      const open = all.filter((token) => has(mask, token));
      if (has(right, END) && (!open.length || random(4) === 0)) {
        found.ended++;
        break;
      }
      const long = open.filter((token) => token >= 256);
      const token = random(3) && long.length ? long[random(long.length)] : open[random(open.length)];
      const refused = all.find(
        (other) => !has(mask, other) && !banned.has(other) && tokens[other].length && random(40) === 0,
      );
      if (refused !== undefined && text.accept(refused)) {
        if (looseMatcher.acceptToken(refused))
          found.differ.push([written, ["accepted", Buffer.from(tokens[refused]).toString("latin1")]]);
        text.undo();
      }
      if (!text.accept(token) || !looseMatcher.acceptToken(token) || !wanted.acceptToken(token))
        throw new Error(`refused after ${written}`);
      written += Buffer.from(tokens[token]).toString("latin1");
    }
    looseMatcher.dispose();
    wanted.dispose();
    text.close();
  }
  return found;
}

const results = [];
for (const job of jobs) results.push(await compare(job));
process.stdout.write(JSON.stringify(results));
