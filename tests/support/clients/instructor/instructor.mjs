// instructor-js: node instructor.mjs BASE_URL KEY. Prints what it got as JSON.
import Instructor from "@instructor-ai/instructor";
import OpenAI from "openai";
import { z } from "zod";

const [baseURL, apiKey] = process.argv.slice(2);
const openai = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const schema = z.object({ city: z.string().max(30), large: z.boolean() });
const request = {
  model: "wisp-mini-q4_0",
  temperature: 0,
  messages: [{ role: "user", content: "What is the capital of Italy?" }],
};
const found = {};
for (const mode of ["TOOLS", "JSON_SCHEMA"]) {
  const client = Instructor({ client: openai, mode });
  const answered = await client.chat.completions.create({ ...request, response_model: { schema, name: "Answer" } });
  found[mode] = { city: answered.city, large: answered.large };
}
const client = Instructor({ client: openai, mode: "TOOLS" });
const stream = await client.chat.completions.create({
  ...request,
  response_model: { schema, name: "Answer" },
  stream: true,
});
for await (const { city, large } of stream) found.streamed = { city, large };
process.stdout.write(JSON.stringify(found));
