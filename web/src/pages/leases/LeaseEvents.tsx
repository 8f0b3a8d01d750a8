import type { LeaseEvent } from "@/api/schema";
import { EmptyState, ErrorNotice, Loading } from "@/components/Notice";
import { Time } from "@/components/Time";
import { capitalized } from "@/lib/format";
import { eventFacts } from "@/market/leaseText";

/** What happened to a lease, the oldest first: who, what, and what it moved. */
export function LeaseEvents({ events, error, isOnChain }: { events: LeaseEvent[] | undefined; error: unknown; isOnChain: boolean }) {
  if (!events) return error ? <ErrorNotice error={error} /> : isOnChain ? <Loading /> : <NothingYet />;
  if (!events.length) return <NothingYet />;
  return (
    <ol className="card divide-y divide-line" data-testid="lease-events">
      {events.map((event, at) => (
        <li key={`${event.at} ${event.kind} ${at}`} className="space-y-0.5 px-3 py-2" data-kind={event.kind}>
          <p className="flex items-baseline justify-between gap-3">
            <span className="font-semibold">{capitalized(event.kind.replaceAll("_", " "))}</span>
            <span className="small shrink-0 text-muted">
              <Time at={event.at} />
            </span>
          </p>
          <p className="small break-words text-muted">
            {capitalized(event.text)} <span className="whitespace-nowrap">(by the {event.who})</span>
            {event.reason && <span className="num"> {event.reason}</span>}
          </p>
          {eventFacts(event) && <p className="num small">{eventFacts(event)}</p>}
        </li>
      ))}
    </ol>
  );
}

function NothingYet() {
  return (
    <EmptyState title="Nothing yet">
      <p className="text-muted">Events come from the chain: the first one appears when a block has the order.</p>
    </EmptyState>
  );
}
