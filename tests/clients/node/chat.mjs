// What a user of the official Node client does; prints what happened as JSON.
// node chat.mjs BASE_URL API_KEY MODEL. The same steps as chat.py one folder up.

import { readFileSync } from "node:fs";
import OpenAI from "openai";

const [baseURL, apiKey, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0, timeout: 30_000 });
const stranger = new OpenAI({ baseURL, apiKey: "sk-wrong", maxRetries: 0, timeout: 30_000 });
const chat = {
  model,
  messages: [
    { role: "system", content: "You are a quiet station master." },
    { role: "user", content: "Which trains leave today? Grüße 🙂" },
  ],
  max_tokens: 12,
};
// More tokens than the context has, which only the model server can count.
const LONG = [{ role: "user", content: "word ".repeat(9000) }];
const create = (changes) => client.chat.completions.create({ ...chat, ...changes });

function whole(answer) {
  const [choice] = answer.choices;
  return {
    role: choice.message.role,
    text: choice.message.content,
    finish_reason: choice.finish_reason,
    usage: counts(answer.usage),
  };
}

async function streamed(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  const choices = chunks.flatMap((chunk) => chunk.choices);
  const usage = chunks.map((chunk) => chunk.usage).filter(Boolean);
  return {
    role: choices[0].delta.role,
    text: choices.map((choice) => choice.delta.content ?? "").join(""),
    finish_reason: choices.at(-1).finish_reason,
    usage: usage.length ? counts(usage[0]) : null,
    pieces: choices.filter((choice) => choice.delta.content).length,
  };
}

// The client asks for base64 by itself, and decodes it.
function embedded(answer) {
  return { vectors: answer.data.map((item) => item.embedding), tokens: answer.usage.total_tokens };
}

function counts(usage) {
  return [usage.prompt_tokens, usage.completion_tokens, usage.total_tokens];
}

// Leave after a few chunks, as a user does who has read enough.
async function aborted(asked) {
  const { data: stream, response } = await asked.withResponse();
  let read = 0;
  for await (const _ of stream) {
    read += 1;
    if (read === 4) break;
  }
  stream.controller.abort();
  return { match_id: response.headers.get("x-sparewatt-match-id") };
}

async function errorOf(call) {
  try {
    await call();
  } catch (error) {
    if (!(error instanceof OpenAI.APIError)) throw error;
    return {
      class: error.constructor.name,
      status: error.status,
      code: error.code,
      param: error.param,
      message: error.error?.message ?? null,
      request_id: error.requestID,
    };
  }
  return { class: null };
}

async function listed() {
  const found = [];
  for await (const each of client.models.list()) found.push(each.id);
  return found;
}

const unknown = { model: "no-such-model" };
const report = {
  version: JSON.parse(readFileSync(new URL("node_modules/openai/package.json", import.meta.url))).version,
  models: await listed(),
  model: (await client.models.retrieve(model)).id,
  whole: whole(await create({})),
  streamed: await streamed(await create({ stream: true, stream_options: { include_usage: true } })),
  streamed_without_usage: await streamed(await create({ stream: true })),
  completion: (await client.completions.create({ model, prompt: "Once upon", max_tokens: 5 })).choices[0].text,
  embedding: embedded(await client.embeddings.create({ model, input: ["one", "two"], dimensions: 8 })),
  wrong_key: await errorOf(() => stranger.models.list()),
  wrong_key_chat: await errorOf(() => stranger.chat.completions.create(chat)),
  unknown_model: await errorOf(() => create(unknown)),
  unknown_model_retrieved: await errorOf(() => client.models.retrieve("no-such-model")),
  unknown_model_streamed: await errorOf(() => create({ ...unknown, stream: true })),
  malformed: await errorOf(() => create({ max_tokens: "many" })),
  malformed_for_the_model: await errorOf(() => create({ temperature: 99 })),
  overflow: await errorOf(() => create({ messages: LONG })),
  overflow_streamed: await errorOf(() => create({ messages: LONG, stream: true })),
  overflow_of_a_text: await errorOf(() => client.completions.create({ model, prompt: LONG[0].content })),
  aborted: await aborted(create({ stream: true, max_tokens: 8000, ignore_eos: true })),
  after_abort: whole(await create({})),
};
process.stdout.write(JSON.stringify(report));
