// The playground's request as a shell command and as a Python program. Texts are quoted for the shell and for Python.
import { requestBody, type ChatQuestion } from "./chat";

function shellQuoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

export function asCurl(question: ChatQuestion, origin: string): string {
  return [
    `curl -N ${origin}/v1/chat/completions`,
    `-H "Authorization: Bearer $SPAREWATT_API_KEY"`,
    "-H 'Content-Type: application/json'",
    `-d ${shellQuoted(JSON.stringify(requestBody(question)))}`,
  ].join(" \\\n  ");
}

export function asPython({ model, messages, maxTokens, provider }: ChatQuestion, origin: string): string {
  const policy = Object.keys(provider).length ? `\n    extra_body={"provider": ${pythonLiteral(provider)}},` : "";
  return `import os
from openai import OpenAI

client = OpenAI(base_url="${origin}/v1", api_key=os.environ["SPAREWATT_API_KEY"])
stream = client.chat.completions.create(
    model=${JSON.stringify(model)},
    messages=${pythonLiteral(messages)},
    max_tokens=${maxTokens},${policy}
    stream=True,
)
for chunk in stream:
    if chunk.choices and chunk.choices[0].delta.content:
        print(chunk.choices[0].delta.content, end="", flush=True)
`;
}

/** Strings and numbers of JSON are valid Python; null, true and false are not. */
function pythonLiteral(value: unknown): string {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(pythonLiteral).join(", ")}]`;
  if (typeof value !== "object") return JSON.stringify(value);
  const fields = Object.entries(value).map(([name, field]) => `${JSON.stringify(name)}: ${pythonLiteral(field)}`);
  return `{${fields.join(", ")}}`;
}
