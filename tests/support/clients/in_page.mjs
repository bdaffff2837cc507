// Vercel's AI SDK in a page, whose service worker answers.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, generateText, streamText } from "ai";
import { config, z } from "zod";

config({ jitless: true }); // the page's policy forbids code that is made from texts

/** @param {string} prompt */
export async function ask(prompt) {
  const wisp = createOpenAICompatible({
    name: "wisp",
    baseURL: `${location.origin}/v1`,
    supportsStructuredOutputs: true,
  });
  const greedy = { model: wisp.chatModel("wisp-mini-q4_0"), temperature: 0, maxRetries: 0, prompt };
  let streamed = "";
  for await (const part of streamText(greedy).textStream) streamed += part;
  const schema = z.object({ city: z.string().max(30) });
  const { output } = await generateText({ ...greedy, output: Output.object({ schema }) });
  return { streamed, output };
}
