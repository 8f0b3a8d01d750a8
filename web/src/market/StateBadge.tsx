import type { LeasePhase, LeaseStateName, OrderStateName, RegistryStatusName } from "@/api/schema";

type StateName = LeasePhase | OrderStateName | LeaseStateName | RegistryStatusName;

const BADGES: Record<StateName, { shape: string; colour: string; meaning: string }> = {
  sending: { shape: "◐", colour: "text-busy", meaning: "On its way to the chain" },
  failed: { shape: "✕", colour: "text-offline", meaning: "It never got to the chain" },
  open: { shape: "◐", colour: "text-busy", meaning: "Its auction runs" },
  matched: { shape: "●", colour: "text-online", meaning: "It has a provider" },
  unmatched: { shape: "◔", colour: "text-suspect", meaning: "No provider was found yet" },
  expired: { shape: "✕", colour: "text-offline", meaning: "It ended without a provider" },
  pending: { shape: "◐", colour: "text-busy", meaning: "Its provider has it, and has not confirmed the start yet" },
  active: { shape: "●", colour: "text-online", meaning: "In service" },
  paused: { shape: "‖", colour: "text-paused", meaning: "By the renter, or because its deposit is empty" },
  vacant: { shape: "◔", colour: "text-suspect", meaning: "Its provider left or failed; stand-ins may take it" },
  unplaced: { shape: "◔", colour: "text-suspect", meaning: "No candidate is left; it waits for a new auction" },
  closed: { shape: "‖", colour: "text-paused", meaning: "It has ended" },
  registered: { shape: "◐", colour: "text-busy", meaning: "Known to the chain, and not active yet" },
  maintenance: { shape: "‖", colour: "text-paused", meaning: "Paused by its owner" },
  suspended: { shape: "✕", colour: "text-offline", meaning: "By the network's guardian" },
  left: { shape: "✕", colour: "text-offline", meaning: "It takes part no more" },
};
/** For a gateway that is newer than this page and has more states. */
const UNKNOWN = { shape: "?", colour: "text-muted", meaning: "" };

/** The state of an order, a lease or a provider as shape, colour and word; what it means is shown on hover. */
export function StateBadge({ state }: { state: StateName }) {
  const { shape, colour, meaning } = BADGES[state] ?? UNKNOWN;
  return (
    <span className="inline-flex items-center gap-1.5 whitespace-nowrap" data-state={state} title={meaning}>
      <span aria-hidden className={`${colour} num`}>
        {shape}
      </span>
      {state}
    </span>
  );
}
