// Vercel's AI SDK: node vercel_ai.mjs BASE_URL KEY. Prints what it got as JSON.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, embedMany, generateText, isStepCount, streamText, tool } from "ai";
import { z } from "zod";

const [baseURL, apiKey] = process.argv.slice(2);
const wisp = createOpenAICompatible({ name: "wisp", baseURL, apiKey, supportsStructuredOutputs: true });
const model = wisp.chatModel("wisp-mini-q4_0");
const greedy = { model, temperature: 0, maxRetries: 0 };
const prompt = "What is the capital of Italy?";

const chat = await generateText({ ...greedy, prompt });
let streamed = "";
for await (const part of streamText({ ...greedy, prompt }).textStream) streamed += part;
const cities = [];
const weather = tool({
  description: "The weather of a city",
  inputSchema: z.object({ city: z.string().max(30) }),
  execute: async ({ city }) => {
    cities.push(city);
    return { sky: "sunny" };
  },
});
const agent = await generateText({
  ...greedy,
  prompt: "What is the weather in Paris?",
  tools: { get_weather: weather },
  stopWhen: isStepCount(2),
  maxOutputTokens: 60,
});
const schema = z.object({ city: z.string().max(30), large: z.boolean() });
const { output: object } = await generateText({ ...greedy, prompt, output: Output.object({ schema }) });
const { embeddings } = await embedMany({
  model: wisp.embeddingModel("wisp-mini-q4_0"),
  values: ["Once upon a time", "Rome"],
});
const failed = await generateText({ ...greedy, prompt, temperature: 9 }).catch((error) => error.statusCode);
const found = {
  chat: chat.text,
  usage: chat.usage.inputTokens > 0 && chat.usage.outputTokens > 0,
  streamed,
  tool: { cities, steps: agent.steps.length },
  object,
  embeddings: embeddings.length,
  failed,
};
process.stdout.write(JSON.stringify(found));
