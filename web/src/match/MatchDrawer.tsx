import { Link } from "wouter";
import { ApiError } from "@/api/client";
import { useMatch, useMe } from "@/api/queries";
import { Drawer } from "@/parts/Drawer";
import { Empty, ErrorNote } from "@/parts/Note";
import { MatchView } from "./MatchView";

/** One match, at the side. */
export function MatchDrawer({ id, onClose }: { id: string; onClose: () => void }) {
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
      {match.data && <MatchView match={match.data} />}
    </Drawer>
  );
}
