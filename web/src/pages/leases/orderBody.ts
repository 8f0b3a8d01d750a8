// The body of an order out of the fields of its form. What a field means is for the gateway: it says what is wrong with one.
import type { LeaseOrderBody } from "../../api/schema.ts";

export interface OrderFields {
  image: string;
  command: string;
  name: string;
  gpus: string;
  cpus: string;
  memoryGb: string;
  diskGb: string;
  duration: string;
  card: string;
  region: string;
  maxHourly: string;
  maxSpend: string;
  policy: string;
  /** Numbers, divided by commas or spaces. */
  ports: string;
  /** One `NAME=value` per line. */
  env: string;
  /** Names, divided by commas or spaces. */
  secrets: string;
  /** Empty: the gateway's default, public addresses. */
  egress: string;
}

export const EMPTY_ORDER: OrderFields = {
  image: "",
  command: "",
  name: "",
  gpus: "1",
  cpus: "",
  memoryGb: "",
  diskGb: "",
  duration: "1h",
  card: "",
  region: "",
  maxHourly: "",
  maxSpend: "",
  policy: "",
  ports: "",
  env: "",
  secrets: "",
  egress: "",
};

/** Empty fields are left out, so that the gateway's defaults hold. Null without an image: there is nothing to ask about. */
export function orderBody(fields: OrderFields): LeaseOrderBody | null {
  const { image, command, name, gpus, cpus, memoryGb, diskGb, duration, maxSpend, egress } = trimmed(fields);
  if (!image) return null;
  const resources = { ...given("gpus", gpus, Number), ...given("cpus", cpus, Number), ...given("memory_gb", memoryGb, Number) };
  return {
    image,
    resources,
    ...given("command", command, String),
    ...given("name", name, String),
    ...given("disk_gb", diskGb, Number),
    ...given("duration", duration, String),
    ...given("policy", conditionsOf(fields), String),
    ...given("max_spend", maxSpend, String),
    ...given("egress", egress, (text) => text as "public" | "none"),
    ...listed("ports", wordsOf(fields.ports).map(portOf)),
    ...listed("env", linesOf(fields.env)),
    ...listed("secrets", wordsOf(fields.secrets)),
  };
}

/** The policy of an order: the facets that were chosen, then what was written. */
export function conditionsOf(fields: OrderFields): string {
  const { maxHourly, card, region, policy } = trimmed(fields);
  return [maxHourly && `max_hourly=${maxHourly}`, card && `gpu=${card}`, region && `region=${region}`, policy].filter(Boolean).join(" ");
}

export function wordsOf(text: string): string[] {
  return text.split(/[\s,]+/).filter(Boolean);
}

/** A value keeps its spaces, but not those before the name. */
export function linesOf(text: string): string[] {
  return text
    .split("\n")
    .map((line) => line.trimStart())
    .filter((line) => line.trim());
}

/** What is no number goes to the gateway as it is, which says so. */
function portOf(text: string): number {
  return /^\d+$/.test(text) ? Number(text) : (text as unknown as number);
}

function trimmed(fields: OrderFields): OrderFields {
  return Object.fromEntries(Object.entries(fields).map(([name, text]) => [name, (text as string).trim()])) as unknown as OrderFields;
}

function given<Name extends string, Value>(name: Name, text: string, read: (text: string) => Value): { [key in Name]?: Value } {
  return text ? ({ [name]: read(text) } as { [key in Name]: Value }) : {};
}

function listed<Name extends string, Value>(name: Name, values: Value[]): { [key in Name]?: Value[] } {
  return values.length ? ({ [name]: values } as { [key in Name]: Value[] }) : {};
}
