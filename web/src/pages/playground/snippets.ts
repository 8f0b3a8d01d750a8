// The same question as a command and as a program. Quoted so that a shell and Python read what was typed.
import { bodyOf, type Asked } from "./answer";

function shell(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

export function asCurl(asked: Asked, origin: string): string {
  return [
    `curl -N ${origin}/v1/chat/completions`,
    `-H "Authorization: Bearer $SPAREWATT_API_KEY"`,
    "-H 'Content-Type: application/json'",
    `-d ${shell(JSON.stringify(bodyOf(asked)))}`,
  ].join(" \\\n  ");
}

export function asPython(asked: Asked, origin: string): string {
  const extra = Object.keys(asked.provider).length ? `\n    extra_body={"provider": ${python(asked.provider)}},` : "";
  const most = asked.maxTokens ? `\n    max_tokens=${asked.maxTokens},` : "";
  return `import os
from openai import OpenAI

client = OpenAI(base_url="${origin}/v1", api_key=os.environ["SPAREWATT_API_KEY"])
stream = client.chat.completions.create(
    model=${JSON.stringify(asked.model)},
    messages=${python(asked.messages)},${most}${extra}
    stream=True,
)
for chunk in stream:
    if chunk.choices and chunk.choices[0].delta.content:
        print(chunk.choices[0].delta.content, end="", flush=True)
`;
}

/** JSON's strings and numbers are Python's too; its three words are not. */
export function python(value: unknown): string {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object")
    return `{${Object.entries(value)
      .map(([name, one]) => `${JSON.stringify(name)}: ${python(one)}`)
      .join(", ")}}`;
  return JSON.stringify(value);
}
