// Runs grammars in the mask engine itself, without a model: a vocabulary of bytes and a few longer tokens.
// stdin: {module, words, jobs: [{grammar, texts, samples}]}; stdout, for each job:
// {texts: [accepted and complete?], samples: [text or null where no end was found], error}.
import { readFileSync } from "node:fs";
import { BYTES, load } from "./xgrammar.mjs";

const { module: file, words, jobs } = JSON.parse(readFileSync(0, "utf8"));
const { TokenizerInfo, GrammarCompiler, Grammar, GrammarMatcher } = load(file);
const encoder = new TextEncoder();
const vocabulary = [...BYTES];
vocabulary.push(...words.map((word) => encoder.encode(word)));
const END = vocabulary.length;
vocabulary.push(encoder.encode("</s>"));
const info = await TokenizerInfo.createTokenizerInfo(vocabulary, "raw", false, vocabulary.length, [END]);
const compiler = await GrammarCompiler.createGrammarCompiler(info, false);

let seed = 1;
const random = () => (seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) / 2 ** 32;
const has = (mask, token) => (mask[token >> 5] >>> (token & 31)) & 1;
const CLOSERS = [...'"}]0aA1Zz-.:@/ '].map((char) => char.charCodeAt(0));

/** Draws a random text of the grammar: any allowed token, after 60 tokens one that closes something. */
async function sample(compiled) {
  const matcher = await GrammarMatcher.createGrammarMatcher(compiled);
  const bytes = [];
  for (let step = 0; step < 1500; step++) {
    const mask = await matcher.getNextTokenBitmask();
    const open = vocabulary.map((_, token) => token).filter((token) => has(mask, token));
    if (!open.length) throw new Error(`nothing may follow ${JSON.stringify(String.fromCharCode(...bytes))}`);
    let token = open[Math.floor(random() * open.length)];
    const printable = open.filter((t) => t > 32 && t < 127);
    if (random() < 0.5 && printable.length) token = printable[Math.floor(random() * printable.length)];
    if (has(mask, END) && (random() < 0.3 || step > 60)) token = END;
    else if (step > 60) token = CLOSERS.find((t) => has(mask, t)) ?? token;
    if (!matcher.acceptToken(token)) throw new Error("a token of the mask is refused");
    if (token === END)
      return (matcher.dispose(), new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(bytes)));
    bytes.push(...vocabulary[token]);
  }
  matcher.dispose();
  return null;
}

/** Whether the text is accepted token by token (longest tokens first) and may end there. */
async function accepts(compiled, text) {
  const matcher = await GrammarMatcher.createGrammarMatcher(compiled);
  try {
    const bytes = encoder.encode(text);
    for (let at = 0; at < bytes.length;) {
      let token = bytes[at];
      for (let i = 256; i < END; i++) {
        const word = vocabulary[i];
        if (word.length > vocabulary[token].length && word.every((byte, j) => bytes[at + j] === byte)) token = i;
      }
      if (!has(await matcher.getNextTokenBitmask(), token) || !matcher.acceptToken(token)) return false;
      at += vocabulary[token].length;
    }
    return Boolean(has(await matcher.getNextTokenBitmask(), END));
  } finally {
    matcher.dispose();
  }
}

const results = [];
for (const { grammar, texts = [], samples = 0 } of jobs) {
  try {
    const parsed = await Grammar.fromEBNF(grammar);
    const compiled = await compiler.compileGrammar(parsed);
    const found = { texts: [], samples: [] };
    for (const text of texts) found.texts.push(await accepts(compiled, text));
    for (let i = 0; i < samples; i++) found.samples.push(await sample(compiled));
    compiled.dispose();
    parsed.dispose();
    results.push(found);
  } catch (error) {
    results.push({ error: String(error?.message ?? error) });
  }
}
process.stdout.write(JSON.stringify(results));
