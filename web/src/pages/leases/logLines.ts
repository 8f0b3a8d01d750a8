// The lines of a lease's log, of which the page keeps the last ones. Output comes in pieces that need not end with a line.
import type { LeaseLogPiece } from "../../api/schema.ts";

export interface LogLine {
  /** Counts from the first line that came, so that a line keeps its key when older ones go. */
  number: number;
  stream: "stdout" | "stderr";
  text: string;
  /** Whether its end has come. */
  isWhole: boolean;
}

export const LINES_MAX = 2_000;
export const LINE_CHARS_MAX = 4_000;
/** Colours and cursor movements, which a page does not show, and control characters but the tab. */
// oxlint-disable-next-line no-control-regex
const CONTROLS = /\u001b\[[0-?]*[ -/]*[@-~]|\u001b[@-_]|[\u0000-\u0008\u000b-\u001f\u007f]/g;

/** The lines with a piece added: an unfinished line of the same stream goes on. */
export function withPiece(lines: LogLine[], { stream = "stdout", text = "" }: Pick<LeaseLogPiece, "stream" | "text">): LogLine[] {
  if (!text) return lines;
  const [head = "", ...rest] = text.split("\n");
  const more = [...lines];
  const open = more.findLastIndex((line) => line.stream === stream && !line.isWhole);
  let number = (more.at(-1)?.number ?? -1) + 1;
  const before = more[open];
  if (before) more[open] = { ...before, text: cut(before.text + clean(head)), isWhole: rest.length > 0 };
  else if (head || rest.length) more.push({ number: number++, stream, text: cut(clean(head)), isWhole: rest.length > 0 });
  rest.forEach((line, at) => {
    const isLast = at === rest.length - 1;
    if (line || !isLast) more.push({ number: number++, stream, text: cut(clean(line)), isWhole: !isLast });
  });
  return more.slice(-LINES_MAX);
}

function clean(text: string): string {
  return text.replace(CONTROLS, "");
}

function cut(text: string): string {
  return text.length > LINE_CHARS_MAX ? `${text.slice(0, LINE_CHARS_MAX)} …` : text;
}
