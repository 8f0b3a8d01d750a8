import assert from "node:assert/strict";
import { test } from "node:test";
import { LINE_CHARS_MAX, LINES_MAX, withPiece, type LogLine } from "../src/pages/leases/logLines.ts";

const texts = (lines: LogLine[]) => lines.map(({ text }) => text);
const after = (...pieces: string[]) => pieces.reduce<LogLine[]>((lines, text) => withPiece(lines, { stream: "stdout", text }), []);

test("pieces become lines wherever they were cut", () => {
  assert.deepEqual(texts(after("one\ntw", "o\n", "\nfour")), ["one", "two", "", "four"]);
});

test("streams do not run into each other", () => {
  const lines = withPiece(withPiece(after("half"), { stream: "stderr", text: "oops\n" }), { stream: "stdout", text: " and half\n" });
  assert.deepEqual(
    lines.map(({ stream, text }) => `${stream} ${text}`),
    ["stdout half and half", "stderr oops"],
  );
});

test("colours and control characters are left out, tabs stay", () => {
  assert.deepEqual(texts(after("\u001b[31mred\u001b[0m\ta\u0007\r\n")), ["red\ta"]);
});

test("only the last lines are kept, and each has its own number", () => {
  const lines = after(Array.from({ length: LINES_MAX + 5 }, (_, at) => `line ${at}\n`).join(""), "more\n");
  assert.equal(lines.length, LINES_MAX);
  assert.equal(lines.at(-1)?.text, "more");
  assert.equal(new Set(lines.map(({ number }) => number)).size, LINES_MAX);
});

test("a line without an end does not grow without one", () => {
  const lines = after("x".repeat(LINE_CHARS_MAX), "y".repeat(LINE_CHARS_MAX), "z");
  assert.equal(lines.length, 1);
  assert.ok((lines[0]?.text.length ?? 0) <= LINE_CHARS_MAX + 2);
});
