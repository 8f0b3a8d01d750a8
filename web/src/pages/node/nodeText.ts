import type { Node } from "@/api/schema";
import { usd } from "@/lib/format";

export function gpuText({ gpu, gpu_count }: Node): string {
  return gpu_count > 1 ? `${gpu_count}× ${gpu}` : gpu;
}

/** The owner's price per hour, from which the prices per token are derived, unless the owner sets those directly. */
export function priceText({ claimed }: Node): string {
  return claimed.hourly_usd === null ? "per token" : `${usd(claimed.hourly_usd)}/h`;
}
