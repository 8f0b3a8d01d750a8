import { useMemo } from "react";
import { Link, useLocation } from "wouter";
import { useLeaseMatch, useMe } from "@/api/queries";
import type { LeaseMatch, MarketOrder } from "@/api/schema";
import { DataTable, type Column } from "@/components/DataTable";
import { EmptyState } from "@/components/Notice";
import { Time } from "@/components/Time";
import { capitalized, count, duration, percent, shortId, usd } from "@/lib/format";
import { useNow } from "@/lib/now";
import { ProviderName } from "@/market/names";
import { OpenPhase } from "@/market/OpenPhase";
import { nextAttemptText, wantedText } from "@/market/orderText";
import { reasonText } from "@/market/reasons";
import { countVotes, type Weighted } from "@/market/stake";
import { StateBadge } from "@/market/StateBadge";
import { VoteRing } from "@/market/VoteRing";

const MATCHES_SHOWN_MAX = 4;

/** Orders with where their auction stands, and why one found nobody. */
export function OrderBook({ orders, voters }: { orders: MarketOrder[]; voters: Weighted[] }) {
  const [, navigate] = useLocation();
  const own = useMe().data?.account.chain_address?.toLowerCase();
  const columns = useMemo(() => orderColumns(voters, matchesToShow(orders), own), [orders, voters, own]);
  return (
    <DataTable
      id="orders"
      rows={orders}
      columns={columns}
      rowKey={(row) => row.id}
      onOpen={(row) => navigate(`/market/${row.id}`)}
      empty={
        <EmptyState title="No order">
          <p className="text-muted">Who could serve yours, the highest price and the deposit are shown before anything is held.</p>
          <Link href="/leases/new" className="link">
            Order a lease
          </Link>
        </EmptyState>
      }
    />
  );
}

/** Orders whose match is worth a request for the list: the newest open ones, and the newest that found nobody. */
function matchesToShow(orders: MarketOrder[]): Set<string> {
  const newest = (isWanted: (order: MarketOrder) => boolean) => orders.filter(isWanted).slice(0, MATCHES_SHOWN_MAX);
  return new Set([...newest(({ state }) => state === "open"), ...newest(({ reason }) => reason !== null)].map(({ id }) => id));
}

function orderColumns(voters: Weighted[], withMatch: Set<string>, own: string | undefined): Column<MarketOrder>[] {
  return [
    {
      name: "Order",
      cell: (row) => (
        <>
          <Link href={`/market/${row.id}`} className="link num small">
            {shortId(row.id, 12)}
          </Link>
          {row.renter === own && <span className="small block text-muted">yours</span>}
        </>
      ),
    },
    {
      name: "State",
      // As high with a second line as without, so that no row moves when an auction ends.
      cell: (row) => (
        <span className="block sm:min-h-11 sm:w-[44ch]">
          <StateBadge state={row.state} />
          {row.state === "unmatched" ? <NextAttempt order={row} /> : row.attempt > 0 && <span className="small text-muted"> attempt {row.attempt + 1}</span>}
          <OrderNote order={row} hasMatch={withMatch.has(row.id)} />
        </span>
      ),
      sortBy: (row) => row.state,
    },
    { name: "Wanted", cell: wantedText, sortBy: (row) => row.gpu_units },
    { name: "Highest price", cell: (row) => `${usd(row.max_hourly_usd)}/h`, sortBy: (row) => Number(row.max_hourly_usd), isNumber: true },
    { name: "For", cell: (row) => duration(row.duration_s), sortBy: (row) => row.duration_s, isNumber: true },
    { name: "Bids", cell: (row) => <BidCount order={row} hasMatch={withMatch.has(row.id)} />, sortBy: (row) => row.certificate?.bid_count ?? -1, isNumber: true },
    { name: "Votes", cell: (row) => <OrderVotes order={row} voters={voters} /> },
    { name: "Ordered", cell: (row) => <Time at={row.created_at} />, sortBy: (row) => row.created_at },
  ];
}

/** The match of an order's newest attempt; what is known of one before it says nothing of this one. */
function useCurrentMatch({ id, attempt }: MarketOrder, isWanted: boolean): { data: LeaseMatch | undefined; seenMs: number } {
  const { data, dataUpdatedAt } = useLeaseMatch(isWanted ? id : null);
  return { data: data?.attempt === attempt ? data : undefined, seenMs: dataUpdatedAt };
}

/** The second line: the countdown of an open auction, who won, or why nobody did. */
function OrderNote({ order, hasMatch }: { order: MarketOrder; hasMatch: boolean }) {
  const match = useCurrentMatch(order, hasMatch);
  if (order.state === "open") return <OpenPhase order={order} match={match.data} seenMs={match.seenMs} />;
  if (order.reason !== null)
    return (
      <span className="small block text-suspect">
        {match.data?.why ?? `${capitalized(reasonText(order.reason))}.`}
      </span>
    );
  if (!order.lease?.provider) return null;
  return (
    <span className="small block text-muted">
      <ProviderName of={order.lease.provider} /> at <span className="num">{usd(order.lease.hourly_usd)}/h</span>
    </span>
  );
}

function NextAttempt({ order }: { order: MarketOrder }) {
  const nowS = useNow();
  return <span className="small text-muted"> {nextAttemptText(order, nowS)}</span>;
}

/** Of an open auction, those that have come so far. */
function BidCount({ order, hasMatch }: { order: MarketOrder; hasMatch: boolean }) {
  const match = useCurrentMatch(order, hasMatch && order.state === "open");
  const bids = order.certificate?.bid_count ?? match.data?.counts.bids;
  return bids === undefined ? "–" : count(bids);
}

/** By the weights of today: the order's own drawer has those of its stake version. */
function OrderVotes({ order: { certificate }, voters }: { order: MarketOrder; voters: Weighted[] }) {
  if (!certificate) return <span className="text-muted">–</span>;
  const votes = countVotes(certificate.signers, voters);
  const label = `${certificate.signers.length} votes, ${percent(votes.share)} of today's stake`;
  return (
    <span className="inline-flex items-center gap-2" title={label}>
      <VoteRing votes={votes} label={label} sizePx={20} />
      <span className="num">{certificate.signers.length}</span>
    </span>
  );
}
