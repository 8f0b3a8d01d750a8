import { Link } from "wouter";
import { ApiError } from "@/api/client";
import { useMatch, useMe } from "@/api/queries";
import type { JobLine } from "@/api/types";
import { count, usd } from "@/lib/format";
import { Drawer } from "@/parts/Drawer";
import { Empty, ErrorNote } from "@/parts/Note";
import { Fact, Facts } from "./Facts";
import { MatchView } from "./MatchView";

/** One match, at the side; where it is a line of an account's usage, with what it cost. */
export function MatchDrawer({ id, paid, onClose }: { id: string; paid?: JobLine | undefined; onClose: () => void }) {
  const me = useMe();
  const match = useMatch(me.data ? id : null);
  const isUnknown = match.error instanceof ApiError && match.error.status === 404;
  return (
    <Drawer title={id} onClose={onClose}>
      {me.data === null && (
        <Empty title="An explanation belongs to whoever asked">
          <p className="text-muted">
            Log in, ask something in the{" "}
            <Link href="/playground" className="link">
              playground
            </Link>{" "}
            and open your own match: the funnel, the scores and the attempts are all there.
          </p>
          <Link href={`/login?next=${encodeURIComponent(`/matching/${id}`)}`} className="link">
            Log in
          </Link>
        </Empty>
      )}
      {isUnknown ? (
        <Empty title="This match is not yours, or is kept no longer">
          <p className="text-muted">{match.error?.message}</p>
        </Empty>
      ) : (
        <ErrorNote error={match.error} />
      )}
      {paid && <Paid job={paid} />}
      {match.data && <MatchView match={match.data} />}
    </Drawer>
  );
}

function Paid({ job }: { job: JobLine }) {
  return (
    <Facts>
      <Fact name="Cost">{usd(job.cost_usd)}</Fact>
      <Fact name="Of it free">{usd(job.promo_usd)}</Fact>
      <Fact name="Tokens in">{count(job.prompt_tokens)}</Fact>
      <Fact name="Tokens out">{count(job.completion_tokens)}</Fact>
    </Facts>
  );
}
