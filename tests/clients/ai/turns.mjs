// What a user of the Vercel AI SDK does; prints what happened as JSON.
// node turns.mjs BASE_URL API_KEY MODEL [stream]. With "stream" it reads one long answer, and says when that has begun.

import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [baseURL, apiKey, model, mode] = process.argv.slice(2);
const openai = createOpenAI({ baseURL, apiKey });
const models = {
  responses: openai(model),
  chat: openai.chat(model),
  compatible: createOpenAICompatible({ name: "network", baseURL, apiKey })(model),
};
const weather = tool({
  description: "The weather at a place, now.",
  inputSchema: z.object({ city: z.string() }),
  execute: async () => "Rain.",
});
const PROMPTS = ["Say one.", "What is the weather?", "Say three."];
const common = { maxRetries: 0, stopWhen: stepCountIs(3), onError: () => {} };

async function turn(chosen, messages) {
  const result = streamText({ ...common, model: chosen, messages, tools: { weather } });
  const [text, steps, response] = [await result.text, await result.steps, await result.response];
  return { text, steps: steps.length, messages: response.messages };
}

async function conversation(chosen) {
  const messages = [];
  const turns = [];
  for (const content of PROMPTS) {
    messages.push({ role: "user", content });
    const { text, steps, messages: added } = await turn(chosen, messages);
    messages.push(...added);
    turns.push({ text, steps });
  }
  return turns;
}

async function overflow(chosen) {
  try {
    await generateText({ maxRetries: 0, model: chosen, prompt: "word ".repeat(20_000) });
    return null;
  } catch (error) {
    return { name: error.name, status: error.statusCode, code: error.data.error.code };
  }
}

async function streamed(chosen) {
  let text = "";
  let pieces = 0;
  for await (const piece of streamText({ ...common, model: chosen, prompt: "Tell me a long story." }).textStream) {
    text += piece;
    if (++pieces === 5) console.log("begun");
  }
  return text;
}

if (mode === "stream") {
  console.log(JSON.stringify(await streamed(models.responses)));
} else {
  const report = {};
  for (const [name, chosen] of Object.entries(models)) {
    report[name] = { turns: await conversation(chosen), overflow: await overflow(chosen) };
  }
  console.log(JSON.stringify(report));
}
