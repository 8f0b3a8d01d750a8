// The body of an order out of the fields of its form. What a field means is for the gateway: it says what is wrong with one.
import type { LeaseOrderBody } from "../../api/schema.ts";

export interface OrderFields {
  image: string;
  command: string;
  gpus: string;
  cpus: string;
  memoryGb: string;
  diskGb: string;
  duration: string;
  card: string;
  region: string;
  maxHourly: string;
  policy: string;
}

export const EMPTY_ORDER: OrderFields = { image: "", command: "", gpus: "1", cpus: "", memoryGb: "", diskGb: "", duration: "1h", card: "", region: "", maxHourly: "", policy: "" };

/** Empty fields are left out, so that the gateway's defaults hold. Null without an image: there is nothing to ask about. */
export function orderBody(fields: OrderFields): LeaseOrderBody | null {
  const { image, command, gpus, cpus, memoryGb, diskGb, duration, card, region, maxHourly, policy } = trimmed(fields);
  if (!image) return null;
  const resources = { ...given("gpus", gpus, Number), ...given("cpus", cpus, Number), ...given("memory_gb", memoryGb, Number) };
  const conditions = [maxHourly && `max_hourly=${maxHourly}`, card && `gpu=${card}`, region && `region=${region}`, policy].filter(Boolean).join(" ");
  return { image, resources, ...given("command", command, String), ...given("disk_gb", diskGb, Number), ...given("duration", duration, String), ...given("policy", conditions, String) };
}

function trimmed(fields: OrderFields): OrderFields {
  return Object.fromEntries(Object.entries(fields).map(([name, text]) => [name, (text as string).trim()])) as unknown as OrderFields;
}

function given<Name extends string, Value>(name: Name, text: string, read: (text: string) => Value): { [key in Name]?: Value } {
  return text ? ({ [name]: read(text) } as { [key in Name]: Value }) : {};
}
