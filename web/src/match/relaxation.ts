// Shortens the numbers in a relaxation, the gateway's sentence about the smallest change of a policy that adds nodes. The
// gateway writes each number to the last bit.

const DIGITS = 3;
const RELAXATION = /^(\S+) (.+)→(.+) (adds .+)$/;
const NUMBER = /^([<>]=?|[a-z_.]+=)?(\d+(?:\.\d+)?(?:e-?\d+)?)$/;

/** `max_price 0.3→0.34123456789 adds 3 nodes` becomes `0.3→0.342`: rounded away from the old value, so that it stays true. */
export function formatRelaxation(text: string): string {
  const [, field, before, after, adds] = RELAXATION.exec(text) ?? [];
  if (!before || !after) return text;
  const oldWords = before.split(" ");
  const words = after.split(" ").map((word, at) => shortened(word, oldWords[at] ?? ""));
  return `${field} ${before}→${words.join(" ")} ${adds}`;
}

function shortened(word: string, oldWord: string): string {
  const [after, before] = [NUMBER.exec(word), NUMBER.exec(oldWord)];
  if (!after || !before || after[2] === before[2]) return word;
  return `${after[1] ?? ""}${rounded(Number(after[2]), Number(after[2]) > Number(before[2]))}`;
}

function rounded(value: number, isUp: boolean): string {
  if (Number.isInteger(value)) return String(value);
  const places = Math.min(20, Math.max(0, DIGITS - 1 - Math.floor(Math.log10(value))));
  const near = Number(value.toFixed(places));
  const isEnough = isUp ? near >= value : near <= value;
  return String(isEnough ? near : Number((near + (isUp ? 1 : -1) * 10 ** -places).toFixed(places)));
}
