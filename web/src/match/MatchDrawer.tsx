import { Link } from "wouter";
import { ApiError } from "@/api/client";
import { useMatch, useMe } from "@/api/queries";
import type { JobUsage } from "@/api/schema";
import { Drawer } from "@/components/Drawer";
import { EmptyState, ErrorNotice } from "@/components/Notice";
import { count, usd } from "@/lib/format";
import { Detail, Details } from "./Details";
import { MatchView } from "./MatchView";

/** The drawer with one match. `job` adds the cost, on the page that lists an account's usage. */
export function MatchDrawer({ id, job, onClose }: { id: string; job?: JobUsage | undefined; onClose: () => void }) {
  const me = useMe();
  const match = useMatch(me.data ? id : null);
  const isNotFound = match.error instanceof ApiError && match.error.status === 404;
  return (
    <Drawer title={id} onClose={onClose}>
      {me.data === null && (
        <EmptyState title="An explanation is shown to the account that sent the request">
          <p className="text-muted">
            Log in, send a request in the{" "}
            <Link href="/playground" className="link">
              playground
            </Link>{" "}
            and open its match: you see the funnel, the cost of each candidate and the attempts.
          </p>
          <Link href={`/login?next=${encodeURIComponent(`/matching/${id}`)}`} className="link">
            Log in
          </Link>
        </EmptyState>
      )}
      {isNotFound ? (
        <EmptyState title="This match is of another account, or no longer stored">
          <p className="text-muted">{match.error?.message}</p>
        </EmptyState>
      ) : (
        <ErrorNotice error={match.error} />
      )}
      {job && (
        <Details>
          <Detail name="Cost">{usd(job.cost_usd)}</Detail>
          <Detail name="Paid with free credits">{usd(job.promo_usd)}</Detail>
          <Detail name="Tokens in">{count(job.prompt_tokens)}</Detail>
          <Detail name="Tokens out">{count(job.completion_tokens)}</Detail>
        </Details>
      )}
      {match.data && <MatchView match={match.data} />}
    </Drawer>
  );
}
