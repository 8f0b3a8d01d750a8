// What would let a node in, with no more digits than a person needs. The gateway's text holds each number to the last bit.

const DIGITS = 3;
const CHANGE = /^(\S+) (.+)→(.+) (adds .+)$/;
const NUMBER = /^([<>]=?|[a-z_.]+=)?(\d+(?:\.\d+)?(?:e-?\d+)?)$/;

/** `max_price 0.3→0.34123456789 adds 3 nodes` says `0.3→0.342`: rounded away from what was asked, so that it holds. */
export function readable(relaxation: string): string {
  const [, field, asked, offered, adds] = CHANGE.exec(relaxation) ?? [];
  if (!asked || !offered) return relaxation;
  const before = asked.split(" ");
  const after = offered.split(" ").map((word, at) => shortened(word, before[at] ?? ""));
  return `${field} ${asked}→${after.join(" ")} ${adds}`;
}

function shortened(word: string, askedWord: string): string {
  const [offered, asked] = [NUMBER.exec(word), NUMBER.exec(askedWord)];
  if (!offered || !asked || offered[2] === asked[2]) return word;
  return `${offered[1] ?? ""}${rounded(Number(offered[2]), Number(offered[2]) > Number(asked[2]))}`;
}

function rounded(value: number, isUp: boolean): string {
  if (Number.isInteger(value)) return String(value);
  const places = Math.min(20, Math.max(0, DIGITS - 1 - Math.floor(Math.log10(value))));
  const near = Number(value.toFixed(places));
  const holds = isUp ? near >= value : near <= value;
  return String(holds ? near : Number((near + (isUp ? 1 : -1) * 10 ** -places).toFixed(places)));
}
