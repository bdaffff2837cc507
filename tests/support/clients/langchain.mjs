// LangChain.js: node langchain.mjs BASE_URL KEY. Prints what it got as JSON.
import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai";
import { z } from "zod";

const [baseURL, apiKey] = process.argv.slice(2);
const connection = { model: "wisp-mini-q4_0", apiKey, configuration: { baseURL }, maxRetries: 0 };
const model = new ChatOpenAI({ ...connection, temperature: 0, maxTokens: 60 });
const question = "What is the capital of Italy?";

const chat = await model.invoke(question);
let streamed = "";
for await (const chunk of await model.stream(question)) streamed += chunk.text;
const cities = [];
const weather = tool(
  async ({ city }) => {
    cities.push(city);
    return JSON.stringify({ sky: "sunny" });
  },
  {
    name: "get_weather",
    description: "The weather of a city",
    schema: z.object({ city: z.string().max(30) }),
  },
);
const bound = model.bindTools([weather]);
const asked = new HumanMessage("What is the weather in Paris?");
const calling = await bound.invoke([asked]);
const result = await weather.invoke(calling.tool_calls[0]);
const last = await bound.invoke([asked, calling, result]);
const schema = z.object({ city: z.string().max(30), large: z.boolean() });
const object = await model.withStructuredOutput(schema, { method: "jsonSchema", name: "answer" }).invoke(question);
const embeddings = await new OpenAIEmbeddings(connection).embedDocuments(["Once upon a time", "Rome"]);
const failed = await new ChatOpenAI({ ...connection, temperature: 9 }).invoke(question).catch(({ status }) => status);
const found = {
  chat: chat.text,
  usage: chat.usage_metadata.input_tokens > 0 && chat.usage_metadata.output_tokens > 0,
  streamed,
  tool: { cities, answered: ToolMessage.isInstance(result) && last.text.length > 0 },
  object,
  embeddings: embeddings.length,
  failed,
};
process.stdout.write(JSON.stringify(found));
