// Numbers, times and money as text. An unknown value is a dash, never a zero.

const MINUS = "−";
const UNKNOWN = "–";

export function count(value: number): string {
  return Math.round(value).toLocaleString("en-US");
}

/** With an SI prefix from 10,000 on. */
export function short(value: number): string {
  const size = Math.abs(value);
  if (size >= 1e9) return `${digits(value / 1e9)}G`;
  if (size >= 1e6) return `${digits(value / 1e6)}M`;
  if (size >= 1e4) return `${digits(value / 1e3)}k`;
  return digits(value);
}

/** Three significant digits. */
export function digits(value: number): string {
  const size = Math.abs(value);
  const fixed = size >= 100 || size === 0 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  return Number(value.toFixed(fixed)).toString().replace("-", MINUS);
}

/** Cents from one dollar on; below that more digits, so that no price looks like zero. */
export function usd(amount: string | number): string {
  const value = Number(amount);
  if (value === 0) return "$0";
  const size = Math.abs(value);
  const text = size >= 0.995 ? withThousands(size, 2) : size >= 0.01 ? atLeastCents(size.toFixed(4)) : twoDigits(size);
  return `${value < 0 ? MINUS : ""}$${text}`;
}

function withThousands(size: number, places: number): string {
  return size.toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places });
}

/** Amounts that are compared, with the same number of decimals: three digits of the smallest in `of`, at least cents. */
export function usdAlike(of: number[]): (amount: number) => string {
  const least = Math.min(...of.filter((one) => one > 0));
  const places = Number.isFinite(least) ? Math.min(9, Math.max(2, 2 - Math.floor(Math.log10(least)))) : 2;
  return (amount) => `$${withThousands(amount, places)}`;
}

function atLeastCents(text: string): string {
  return text.replace(/(\.\d\d)(\d*?)0+$/, "$1$2");
}

function twoDigits(size: number): string {
  const text = size.toPrecision(2);
  return text.includes("e") ? size.toFixed(9).replace(/0+$/, "") : text;
}

export function ms(value: number | null | undefined): string {
  if (value === null || value === undefined) return UNKNOWN;
  return value >= 10_000 ? `${digits(value / 1000)} s` : value >= 1000 ? `${(value / 1000).toFixed(2)} s` : `${digits(value)} ms`;
}

export function seconds(value: number): string {
  return Math.abs(value) >= 1 ? `${digits(value)} s` : `${digits(value * 1000)} ms`;
}

export function percent(share: number | null | undefined): string {
  if (share === null || share === undefined) return UNKNOWN;
  const value = share * 100;
  return `${value === 100 || value === 0 ? value : value >= 99 ? value.toFixed(2) : value.toFixed(1)} %`;
}

export function gb(bytes: number): string {
  return `${digits(bytes / 1e9)} GB`;
}

const UNITS: [number, string][] = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
];

export function duration(s: number): string {
  for (const [unitS, unit] of UNITS) if (s >= unitS) return `${Math.floor(s / unitS)} ${unit}`;
  return `${Math.max(0, Math.floor(s))} s`;
}

export function ago(unixS: number, nowS: number): string {
  const passed = nowS - unixS;
  return Math.abs(passed) < 1.5 ? "now" : passed < 0 ? `in ${duration(-passed)}` : `${duration(passed)} ago`;
}

export function exactTime(unixS: number): string {
  return `${new Date(unixS * 1000).toISOString().replace("T", " ").slice(0, 19)} UTC`;
}

export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

export function capitalized(word: string): string {
  return word.replace(/^./, (first) => first.toUpperCase());
}

/** The start of an address or id. */
export function shortId(id: string, chars = 10): string {
  return `${id.slice(0, chars)}…`;
}

/** A node that has left since has no name any more. */
export function nodeLabel({ node, name }: { node: string; name: string | null }): string {
  return name ?? shortId(node);
}
