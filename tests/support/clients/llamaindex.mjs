// LlamaIndex.TS: node llamaindex.mjs BASE_URL KEY. Prints what it got as JSON.
import { OpenAI, OpenAIEmbedding } from "@llamaindex/openai";
import { z } from "zod";

const [baseURL, apiKey] = process.argv.slice(2);
const connection = { model: "wisp-mini-q4_0", apiKey, baseURL, maxRetries: 0 };
const llm = new OpenAI({ ...connection, temperature: 0, maxTokens: 60 });
const ask = (content) => [{ role: "user", content }];
const question = ask("What is the capital of Italy?");

const chat = await llm.chat({ messages: question });
let streamed = "";
for await (const chunk of await llm.chat({ messages: question, stream: true })) streamed += chunk.delta;
const parameters = {
  type: "object",
  properties: { city: { type: "string", maxLength: 30 } },
  required: ["city"],
  additionalProperties: false,
};
const weather = {
  metadata: { name: "get_weather", description: "The weather of a city", parameters },
  call: () => ({ sky: "sunny" }),
};
const calling = await llm.chat({ messages: ask("What is the weather in Paris?"), tools: [weather] });
const cities = calling.message.options.toolCall.map(
  ({ input }) => (typeof input === "string" ? JSON.parse(input) : input).city,
);
const responseFormat = z.object({ city: z.string().max(30), large: z.boolean() });
const structured = await llm.chat({ messages: question, responseFormat });
const embeddings = await new OpenAIEmbedding(connection).getTextEmbeddings(["Once upon a time", "Rome"]);
const failed = await new OpenAI({ ...connection, temperature: 9 })
  .chat({ messages: question })
  .catch(({ status }) => status);
const found = {
  chat: chat.message.content,
  usage: chat.raw.usage.prompt_tokens > 0 && chat.raw.usage.completion_tokens > 0,
  streamed,
  tool: { cities },
  object: JSON.parse(structured.message.content),
  embeddings: embeddings.length,
  failed,
};
process.stdout.write(JSON.stringify(found));
