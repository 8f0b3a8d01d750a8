import { Link, useLocation } from "wouter";
import { useLeaseMatch, useMe } from "@/api/queries";
import type { FeedAuction, LeaseMatch } from "@/api/schema";
import { DataTable, type Column } from "@/components/DataTable";
import { EmptyState } from "@/components/Notice";
import { Time } from "@/components/Time";
import { count, percent, shortId } from "@/lib/format";
import { OpenPhase } from "./OpenPhase";
import { countVotes, isQuorumShare } from "./stake";
import { StateBadge } from "./StateBadge";
import { VoteRing } from "./VoteRing";

/** The newest auctions of leases, live: an order is opened, validators vote, the chain has a certificate. */
export function AuctionStream({ auctions }: { auctions: FeedAuction[] }) {
  const [, navigate] = useLocation();
  return (
    <DataTable
      id="auctions"
      rows={auctions}
      columns={COLUMNS}
      rowKey={(row) => row.id}
      onOpen={(row) => navigate(`/market/${row.id}`)}
      empty={<EmptyState title="No auction yet" />}
    />
  );
}

const COLUMNS: Column<FeedAuction>[] = [
  { name: "Time", cell: (row) => <Time at={row.certified_at ?? row.at} /> },
  {
    name: "Order",
    cell: (row) => (
      <Link href={`/market/${row.id}`} className="link num small">
        {shortId(row.id, 14)}
      </Link>
    ),
  },
  { name: "GPUs", cell: (row) => count(row.gpus), isNumber: true },
  {
    name: "State",
    // As high with a countdown as without, so that no row moves when an auction ends.
    cell: (row) => (
      <span className="block sm:min-h-11 sm:w-56">
        <StateBadge state={row.state} />
        {row.attempt > 0 && <span className="small text-muted"> attempt {row.attempt + 1}</span>}
        <OpenPhase order={{ ...row, opened_at: row.at }} />
      </span>
    ),
  },
  { name: "Bids", cell: (row) => <Bids of={row} />, isNumber: true },
  { name: "Votes", cell: (row) => <Votes of={row} /> },
];

/** What validators have signed so far of an auction that runs. The feed has what is on the chain, and the rest needs a login. */
function useRunningMatch({ id, attempt, state }: FeedAuction): LeaseMatch | undefined {
  const me = useMe();
  const { data } = useLeaseMatch(me.data && state === "open" ? id : null);
  return state === "open" && data?.attempt === attempt ? data : undefined;
}

function Bids({ of: auction }: { of: FeedAuction }) {
  const running = useRunningMatch(auction);
  const bids = auction.bids ?? running?.counts.bids;
  return bids === undefined ? "–" : count(bids);
}

function Votes({ of: auction }: { of: FeedAuction }) {
  const running = useRunningMatch(auction);
  const signers = new Set(running?.votes.filter(({ round }) => round === running.phase.round).map(({ validator }) => validator));
  const votes = running ? countVotes(signers, running.voters) : { share: auction.share, isQuorum: isQuorumShare(auction.share) };
  const said = running ? signers.size : auction.votes;
  const label = `${said} of ${auction.voters} validators, ${percent(votes.share)} of the stake`;
  return (
    <span className="inline-flex items-center gap-2" title={label}>
      <VoteRing votes={votes} label={label} sizePx={20} />
      <span className="num">
        {said} of {auction.voters}
      </span>
    </span>
  );
}
