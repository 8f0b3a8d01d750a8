// An order as a line for a shell: the same fields as the form has, for what a browser cannot do itself.
import { conditionsOf, linesOf, wordsOf, type OrderFields } from "./orderBody.ts";

/** Every value that a shell would read otherwise is quoted. */
export function orderLine(fields: OrderFields): string {
  const options: [name: string, value: string][] = [
    ["image", fields.image],
    ["command", fields.command],
    ["name", fields.name],
    ["gpus", fields.gpus],
    ["cpus", fields.cpus],
    ["memory-gb", fields.memoryGb],
    ["disk-gb", fields.diskGb],
    ["duration", fields.duration],
    ["policy", conditionsOf(fields)],
    ["max-spend", fields.maxSpend],
    ["egress", fields.egress],
    ...wordsOf(fields.ports).map((port): [string, string] => ["port", port]),
    ...linesOf(fields.env).map((line): [string, string] => ["env", line]),
    ...wordsOf(fields.secrets).map((name): [string, string] => ["secret", name]),
  ];
  const words = options.filter(([, value]) => value.trim()).map(([name, value]) => `--${name} ${shellWord(name === "env" ? value : value.trim())}`);
  return ["sparewatt lease create", ...words].join(" ");
}

/** In single quotes unless it needs none; a quote within ends them, is written by itself, and begins them again. */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
