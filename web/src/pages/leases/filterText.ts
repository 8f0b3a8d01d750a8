// What rules a provider out of an order, in words. The names are those of the gateway's quote: its checks and the policy's fields.

const MEANINGS: Record<string, string> = {
  connected: "the node is not connected now",
  "offers leases": "the owner leases nothing now",
  "has a price": "no price is set for this",
  bond: "the free bond is too small",
  region: "in another region",
  gpu: "no such GPU",
  gpu_class: "a GPU of another class",
  vram_gb: "too little GPU memory",
  gpu_count: "too few GPUs",
  gpus: "too few free GPUs",
  cpus: "too few processors",
  memory_gb: "too little memory",
  disk_gb: "too little disk",
  egress: "programs may not reach the internet",
  duration: "leases are shorter there",
  notice: "too short a notice",
  tier: "of another tier",
  max_hourly: "asks more than the highest price",
  only: "not among those that you named",
  ignore: "ruled out by you",
};

/** A check of a newer gateway is shown by its own name. */
export function filterText(filter: string): string {
  return MEANINGS[filter] ?? filter;
}

const FIELDS: Record<string, string> = {
  gpus: "GPUs",
  cpus: "processors",
  memory_gb: "memory in GB",
  disk_gb: "disk in GB",
  vram_gb: "GPU memory in GB",
  gpu: "GPU",
  gpu_class: "class of GPU",
  max_hourly: "highest price",
};

/** The gateway's line on a change that would help, with the field in words: `max_hourly 0.1→0.2 adds 1 node`. */
export function changeText(line: string): string {
  return line.replace(/^\S+/, (field) => FIELDS[field] ?? field);
}
