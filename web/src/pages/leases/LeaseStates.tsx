import { Fragment } from "react";
import type { Lease, LeaseEvent } from "@/api/schema";
import { Time } from "@/components/Time";
import { currentStep, leaseSteps, type LeaseStepName, type LeaseStepState } from "@/market/leaseSteps";

const MEANINGS: Record<LeaseStepName, string> = {
  ordered: "The deposit is held, and an auction looks for a provider",
  matched: "Validators have certified a winner",
  starting: "Its provider fetches the image and starts the program; nothing is paid yet",
  running: "Its provider has confirmed the start; it is paid by the second",
  paused: "The program and the meter stand; the data is kept until the grace ends",
  closed: "It has ended, and the rest of the deposit came back",
};
const BOXES: Record<LeaseStepState, string> = {
  done: "border-line",
  now: "border-volt bg-surface font-semibold",
  "to come": "border-dashed border-line text-muted",
  "left out": "border-dashed border-line text-muted",
};
/** The current state has the shape and colour that it has everywhere. */
const SHAPES: Record<LeaseStepName, [shape: string, colour: string]> = {
  ordered: ["◐", "text-busy"],
  matched: ["◐", "text-busy"],
  starting: ["◐", "text-busy"],
  running: ["●", "text-online"],
  paused: ["‖", "text-paused"],
  closed: ["‖", "text-paused"],
};
const OTHER_SHAPES: Record<Exclude<LeaseStepState, "now">, [shape: string, colour: string]> = {
  done: ["✓", "text-muted"],
  "to come": ["○", "text-muted"],
  "left out": ["–", "text-muted"],
};

/** The states of a lease with the ways between them; the current one is marked. */
export function LeaseStates({ lease, events }: { lease: Lease; events: LeaseEvent[] }) {
  return (
    <ol className="grid grid-cols-2 gap-2 sm:grid-cols-3 lg:flex lg:items-stretch" data-testid="lease-states" data-step={currentStep(lease)}>
      {leaseSteps(lease, events).map(({ name, state, at }) => (
        <Fragment key={name}>
          {name !== "ordered" && (
            <li aria-hidden className="num self-center text-muted max-lg:hidden" title={name === "paused" ? "and back" : undefined}>
              {name === "paused" ? "⇄" : "→"}
            </li>
          )}
          <li
            aria-current={state === "now" ? "step" : undefined}
            data-step-state={state}
            title={MEANINGS[name]}
            className={`min-w-0 rounded-md border px-3 py-2 lg:flex-1 ${BOXES[state]}`}
          >
            <span className="flex items-center gap-1.5">
              <Shape name={name} state={state} />
              {name}
              <span className="sr-only">: {state}</span>
            </span>
            <span className="small block font-normal text-muted">{at === null ? state : <Time at={at} />}</span>
          </li>
        </Fragment>
      ))}
    </ol>
  );
}

function Shape({ name, state }: { name: LeaseStepName; state: LeaseStepState }) {
  const [shape, colour] = state === "now" ? SHAPES[name] : OTHER_SHAPES[state];
  return (
    <span aria-hidden className={`num ${colour}`}>
      {shape}
    </span>
  );
}
