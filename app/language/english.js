/** English singular forms, where they differ: the texts in the code have the plural ones. */

/** @type {Record<string, { one: string }>} */
export const SINGULAR = {
  "Answer from {n} documents": { one: "Answer from {n} document" },
  "Answers come from {n} documents": { one: "Answers come from {n} document" },
  "Answers come from {n} documents, whose passages go to {server}": {
    one: "Answers come from {n} document, whose passages go to {server}",
  },
  "Embedding {done} of {n} passages …": { one: "Embedding {done} of {n} passage …" },
  "Show the first {n} lines": { one: "Show the first line" },
  "The context of {name} has {n} tokens.": { one: "The context of {name} has {n} token." },
  "This chat fills {n} tokens of the {context} that the context holds.": {
    one: "This chat fills {n} token of the {context} that the context holds.",
  },
  "{count} downloads": { one: "{count} download" },
  "{count} likes": { one: "{count} like" },
  "{names} were shared with Wisp.": { one: "{names} was shared with Wisp." },
  "{name} has {n} models.": { one: "{name} has {n} model." },
  "{name} has {n} tools.": { one: "{name} has {n} tool." },
  "{n} calls went there, the last at {time}.": { one: "{n} call went there, at {time}." },
  "{n} tools": { one: "{n} tool" },
  "{n} chats": { one: "{n} chat" },
  "{n} chats imported.": { one: "{n} chat imported." },
  "{n} chats were empty or there already.": { one: "{n} chat was empty or there already." },
  "{n} model files": { one: "{n} model file" },
  "{n} of {all} requests wait for memory of the KV cache, and go on by themselves.": {
    one: "{n} of {all} requests waits for memory of the KV cache, and goes on by itself.",
  },
  "{n} older questions with their answers are not sent.": { one: "{n} older question with its answer is not sent." },
  "{n} pages": { one: "{n} page" },
  "{n} parts": { one: "{n} part" },
  "{n} pictures": { one: "{n} picture" },
  "{n} passages": { one: "{n} passage" },
  "{n} prompt tokens, {cached} of them reused from before.": { one: "{n} prompt token, {cached} reused from before." },
  "{n} requests for {server}": { one: "{n} request for {server}" },
  "{n} requests went there, the last at {time}.": { one: "{n} request went there, at {time}." },
  "{n} tokens": { one: "{n} token" },
  "{used} of {n} tokens": { one: "{used} of {n} token" },
  "the CPU, {n} threads": { one: "the CPU, {n} thread" },
};
