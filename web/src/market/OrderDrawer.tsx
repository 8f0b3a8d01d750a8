import { Link } from "wouter";
import { ApiError } from "@/api/client";
import { useLeases, useMarketOrder, useMe, useWatchedMatch } from "@/api/queries";
import type { MarketOrder } from "@/api/schema";
import { Drawer } from "@/components/Drawer";
import { LastKnown } from "@/components/LastKnown";
import { EmptyState, ErrorNotice, Loading } from "@/components/Notice";
import { SegmentedControl } from "@/components/SegmentedControl";
import { Time } from "@/components/Time";
import { capitalized, duration, shortId, usd } from "@/lib/format";
import { useNow } from "@/lib/now";
import { useQueryText } from "@/lib/urlState";
import { Detail, Details } from "@/match/Details";
import { EndLease } from "@/pages/leases/EndLease";
import { AuctionView } from "./AuctionView";
import { useProviderName } from "./names";
import { standingText, wantedText } from "./orderText";
import { reasonText } from "./reasons";
import { StateBadge } from "./StateBadge";

/** The drawer with one order and the match of an attempt, the newest unless the address names another. */
export function OrderDrawer({ id, onClose }: { id: string; onClose: () => void }) {
  const [attempt, setAttempt] = useQueryText("attempt");
  const order = useMarketOrder(id);
  const match = useWatchedMatch(order.error && !order.data ? null : id, attempt);
  return (
    <Drawer title={`Order ${shortId(id, 14)}`} onClose={onClose}>
      {!order.data && (order.error ? <OrderProblem error={order.error} /> : <Loading />)}
      {order.data && (
        <LastKnown error={order.error} seenMs={order.dataUpdatedAt}>
          <Standing order={order.data} />
          {match.data && match.data.attempts.length > 1 && (
            <div className="flex items-center gap-3">
              <span className="small text-muted">Attempt</span>
              <SegmentedControl
                label="Attempt"
                value={String(match.data.attempt + 1)}
                options={match.data.attempts.map((number) => String(number + 1))}
                onChange={(number) => setAttempt(String(Number(number) - 1))}
              />
            </div>
          )}
          {!order.error && <ErrorNotice error={match.error} />}
          {match.isPending && !match.error && <Loading />}
          {match.data && <AuctionView match={match.data} seenMs={match.dataUpdatedAt} />}
        </LastKnown>
      )}
    </Drawer>
  );
}

function OrderProblem({ error }: { error: Error }) {
  if (!(error instanceof ApiError && error.status === 404)) return <ErrorNotice error={error} />;
  return (
    <EmptyState title="There is no such order on this network's chain">
      <p className="text-muted">{error.message}</p>
    </EmptyState>
  );
}

/** What the order is about and where it stands. */
function Standing({ order }: { order: MarketOrder }) {
  const [nameOf, nowS, me] = [useProviderName(), useNow(), useMe()];
  const isOwn = order.renter === me.data?.account.chain_address?.toLowerCase();
  const own = useLeases(isOwn).data?.data.find(({ order_id }) => order_id === order.id);
  return (
    <>
      <div className="flex flex-wrap items-start justify-between gap-3" data-testid="standing">
        <div className="min-w-0">
          <p className="text-[20px] leading-tight font-semibold">{standingText(order, nameOf, nowS)}</p>
          {own && (
            <p className="break-words text-muted">
              Your lease{" "}
              <Link href={`/leases/${own.id}`} className="link">
                {own.name}
              </Link>{" "}
              of <span className="num small">{own.image}</span>
            </p>
          )}
          {order.reason && order.state !== "unmatched" && <p className="text-muted">{capitalized(reasonText(order.reason))}.</p>}
        </div>
        {own && <EndLease lease={own} />}
      </div>
      <Details>
        <Detail name="State">
          <StateBadge state={order.state} />
        </Detail>
        <Detail name="Wanted">{wantedText(order)}</Detail>
        <Detail name="Highest price">{usd(order.max_hourly_usd)}/h</Detail>
        <Detail name="Duration">{duration(order.duration_s)}</Detail>
        <Detail name="Ordered">
          <Time at={order.created_at} />
        </Detail>
        <Detail name="Renter">{isOwn ? "you" : <span title={order.renter}>{shortId(order.renter)}</span>}</Detail>
        {order.refunded_usd === null ? (
          <Detail name="Deposit left">{usd(order.deposit_usd)}</Detail>
        ) : (
          <Detail name="Cost">
            {usd(order.charged_usd)}
            <span className="small block font-sans text-muted">{usd(order.refunded_usd)} came back</span>
          </Detail>
        )}
        <Detail name="Attempt">
          {order.attempt + 1} of {Math.max(order.attempt, order.max_attempts) + 1}
        </Detail>
      </Details>
    </>
  );
}
