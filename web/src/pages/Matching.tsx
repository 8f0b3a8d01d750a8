import { useLocation } from "wouter";
import { MatchDrawer } from "@/match/MatchDrawer";
import { MatchStream } from "@/match/MatchStream";
import { Page } from "@/parts/Page";

export default function Matching({ id }: { id: string | null }) {
  const [, go] = useLocation();
  return (
    <Page
      title="Live matching"
      lead="Every request is matched to a node: who can have it, what each would cost in seconds and dollars, who got it, and what came of it. Open one of your own to see why."
    >
      <MatchStream limit={100} />
      {id && <MatchDrawer id={id} onClose={() => go("/matching")} />}
    </Page>
  );
}
