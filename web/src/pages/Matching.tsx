import { useLocation } from "wouter";
import { Page } from "@/components/Page";
import { MatchDrawer } from "@/match/MatchDrawer";
import { MatchStream } from "@/match/MatchStream";

export default function Matching({ id }: { id: string | null }) {
  const [, navigate] = useLocation();
  return (
    <Page
      title="Live matching"
      lead="The gateway matches every request to a node: it filters the nodes, predicts what each would cost in time and money, and sends the request to the best one. Open one of your own to see why."
    >
      <MatchStream limit={100} />
      {id && <MatchDrawer id={id} onClose={() => navigate("/matching")} />}
    </Page>
  );
}
