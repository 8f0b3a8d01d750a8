import { Link, useLocation } from "wouter";
import { Page, Section } from "@/components/Page";
import { useFeed } from "@/feed/useFeed";
import { AuctionStream } from "@/market/AuctionStream";
import { MatchDrawer } from "@/match/MatchDrawer";
import { MatchStream } from "@/match/MatchStream";

const AUCTIONS_SHOWN = 6;

export default function Matching({ id }: { id: string | null }) {
  const [, navigate] = useLocation();
  const { auctions } = useFeed();
  return (
    <Page
      title="Live matching"
      lead="The gateway matches every request to a node: it filters the nodes, predicts what each would cost in time and money, and sends the request to the best one. Open one of your own to see why. Leases of whole machines are matched by auction, and validators vote on each."
    >
      {auctions.length > 0 && (
        <Section
          title="Auctions of leases"
          aside={
            <Link href="/market" className="link small">
              The order book
            </Link>
          }
        >
          <AuctionStream auctions={auctions.slice(0, AUCTIONS_SHOWN)} />
        </Section>
      )}
      <Section title="Requests">
        <MatchStream limit={100} />
      </Section>
      {id && <MatchDrawer id={id} onClose={() => navigate("/matching")} />}
    </Page>
  );
}
