// What a user of Anthropic's Node client does; prints what happened as JSON.
// node messages.mjs ROOT_URL API_KEY MODEL. The same steps as messages.py one folder up.

import { readFileSync } from "node:fs";
import Anthropic from "@anthropic-ai/sdk";

const [baseURL, apiKey, model] = process.argv.slice(2);
const options = { baseURL, maxRetries: 0, timeout: 60_000 };
const client = new Anthropic({ ...options, apiKey });
const bearer = new Anthropic({ ...options, apiKey: null, authToken: apiKey });
const stranger = new Anthropic({ ...options, apiKey: "sk-wrong" });

const LONG_TOKENS = 40;
const SHORT_TOKENS = 6;
const tools = [
  {
    name: "get_weather",
    description: "The weather of a city.",
    input_schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
];
const system = [{ type: "text", text: "You are a station.", cache_control: { type: "ephemeral" } }];
const ask = { model, system, tools, max_tokens: LONG_TOKENS };
const question = { role: "user", content: "What is the weather in Rome?" };
const short = { ...ask, max_tokens: SHORT_TOKENS, messages: [question] };
const full = { ...short, messages: [{ role: "user", content: "word ".repeat(12_000) }] };

const counts = (usage) => [usage.input_tokens, usage.output_tokens];

function result(call) {
  const used = call.content.find((block) => block.type === "tool_use");
  return { role: "user", content: [{ type: "tool_result", tool_use_id: used.id, content: "sunny, 21 degrees" }] };
}

async function streamed(body) {
  const stream = client.messages.stream(body);
  const pieces = [];
  const { response } = await stream.withResponse();
  const matchId = response.headers.get("x-sparewatt-match-id");
  stream.on("text", (text) => {
    pieces.push(text);
    if (pieces.length === 2) console.log(`writing ${matchId}`);
  });
  const message = await stream.finalMessage();
  return {
    text: pieces.join(""),
    pieces: pieces.length,
    stop_reason: message.stop_reason,
    usage: counts(message.usage),
    match_id: matchId,
  };
}

async function streamedCall(body) {
  const message = await client.messages.stream(body).finalMessage();
  return { blocks: message.content, stop_reason: message.stop_reason };
}

async function errorOf(call) {
  try {
    await call();
  } catch (error) {
    if (!(error instanceof Anthropic.APIError)) throw error;
    return {
      class: error.constructor.name,
      status: error.status,
      type: error.error?.error?.type,
      message: error.error?.error?.message,
      request_id: error.requestID,
    };
  }
  return { class: null };
}

const call = await client.messages.create({ ...ask, messages: [question] });
const messages = [question, { role: "assistant", content: call.content }, result(call)];
const long = await streamed({ ...ask, messages });
messages.push({ role: "assistant", content: long.text }, { role: "user", content: "And tomorrow? Grüße 🙂" });
const last = await client.messages.create({ ...ask, max_tokens: SHORT_TOKENS, messages });

const packageFile = new URL("node_modules/@anthropic-ai/sdk/package.json", import.meta.url);
const report = {
  version: JSON.parse(readFileSync(packageFile, "utf8")).version,
  models: (await client.models.list()).data.map((each) => each.id),
  model: (await client.models.retrieve(model)).id,
  counted: (await client.messages.countTokens({ model, system, messages, tools })).input_tokens,
  call: { blocks: call.content, stop_reason: call.stop_reason },
  streamed_call: await streamedCall({ ...ask, messages: [question] }),
  long,
  last: { text: last.content[0].text, stop_reason: last.stop_reason, usage: counts(last.usage) },
  by_bearer: (await bearer.messages.create({ ...short, tools: [] })).content[0].text,
  full: await errorOf(() => client.messages.create(full)),
  full_streamed: await errorOf(() => client.messages.create({ ...full, stream: true })),
  wrong_key: await errorOf(() => stranger.messages.create(short)),
  unknown_model: await errorOf(() => client.messages.create({ ...short, model: "no-such-model" })),
  malformed: await errorOf(() => client.messages.create({ ...short, temperature: "hot" })),
  refused: await errorOf(() => client.messages.create({ ...short, mcp_servers: [{ type: "url", url: "x" }] })),
};
console.log(JSON.stringify(report));
