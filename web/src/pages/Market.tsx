import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo } from "react";
import { Link, useLocation } from "wouter";
import { useMarketLeases, useMarketOrders, useMarketProviders, useMarketTables, useMarketValidators, useNetwork } from "@/api/queries";
import type { MarketLease, MarketOrder, MarketProvider } from "@/api/schema";
import { Button } from "@/components/Button";
import { LastKnown } from "@/components/LastKnown";
import { ErrorNotice, Loading, NoChain } from "@/components/Notice";
import { Page, Section } from "@/components/Page";
import { SegmentedControl } from "@/components/SegmentedControl";
import { Stat, Stats } from "@/components/Stat";
import { useFeed } from "@/feed/useFeed";
import { count, usd } from "@/lib/format";
import { useQueryChoice } from "@/lib/urlState";
import { median } from "@/market/median";
import { OrderDrawer } from "@/market/OrderDrawer";
import type { Weighted } from "@/market/stake";
import { LeaseTable } from "./market/LeaseTable";
import { OrderBook } from "./market/OrderBook";
import { ProviderTable } from "./market/ProviderTable";

const WHICH = ["all", "open"] as const;
type Which = (typeof WHICH)[number];

export default function Market({ id }: { id: string | null }) {
  const network = useNetwork();
  const [which, setWhich] = useQueryChoice<Which>("which", WHICH);
  const [, navigate] = useLocation();
  if (!network.data)
    return (
      <Page title="Market">
        <ErrorNotice error={network.error} />
        {network.isPending && <Loading />}
      </Page>
    );
  return (
    <Page
      title="Market"
      lead="Whole machines are leased by auction. Providers bid sealed, validators vote on the result, and the chain accepts it with more than two thirds of their stake. Open an order to see every bid and every vote."
      actions={
        network.data.chain && (
          <>
            <SegmentedControl label="Orders and leases" value={which} options={WHICH} onChange={setWhich} />
            <Button look="main" onClick={() => navigate("/leases/new")}>
              Order a lease
            </Button>
          </>
        )
      }
    >
      {network.data.chain ? <MarketTablesOf which={which} /> : <NoChain what="Leases" />}
      {id && network.data.chain && <OrderDrawer key={id} id={id} onClose={() => navigate("/market")} />}
    </Page>
  );
}

function MarketTablesOf({ which }: { which: Which }) {
  const [orders, leases, providers, validators, tables] = [
    useMarketOrders(which),
    useMarketLeases(which),
    useMarketProviders(),
    useMarketValidators(),
    useMarketTables(),
  ];
  const voters = useMemo(() => validators.data?.data ?? [], [validators.data]);
  const error = orders.error ?? leases.error ?? providers.error ?? validators.error;
  if (error && !orders.data) return <ErrorNotice error={error} />;
  return (
    <LastKnown error={error} seenMs={orders.dataUpdatedAt}>
      <LiveMarket />
      <MarketStats orders={orders.data?.data} leases={leases.data?.data} providers={providers.data?.data} votersCount={voters.filter(isVoting).length} />
      <Section
        title="Order book"
        aside={
          <span className="num small text-muted" title="The newest block that this gateway has read. Money moves at the final one, some blocks before.">
            {orders.data && `block ${count(orders.data.latest_block)}`}
          </span>
        }
      >
        {orders.data ? <OrderBook orders={orders.data.data} voters={voters} /> : <Skeleton />}
      </Section>
      <Section title="Leases">{leases.data ? <LeaseTable leases={leases.data.data} /> : <Skeleton />}</Section>
      <Section title="Who may bid">{providers.data ? <ProviderTable providers={providers.data.data} tables={tables.data} /> : <Skeleton />}</Section>
    </LastKnown>
  );
}

/** Fetches orders and leases as soon as the live feed tells of a change: an auction may last a second. */
function LiveMarket() {
  const client = useQueryClient();
  const { auctions } = useFeed();
  useEffect(() => {
    void client.invalidateQueries({ predicate: ({ queryKey: [path] }) => String(path).startsWith("/v1/market/orders") || String(path).startsWith("/v1/market/leases") });
  }, [client, auctions]);
  return null;
}

/** Keeps the place of a table until it is there. */
function Skeleton() {
  return <div className="card h-40" aria-hidden />;
}

function isVoting({ weight_usd }: Weighted): boolean {
  return Number(weight_usd) > 0;
}

interface StatsProps {
  orders: MarketOrder[] | undefined;
  leases: MarketLease[] | undefined;
  providers: MarketProvider[] | undefined;
  votersCount: number;
}

function MarketStats({ orders = [], leases = [], providers = [], votersCount }: StatsProps) {
  const active = leases.filter(({ state }) => state === "active" || state === "pending");
  const hourly = active.reduce((sum, { hourly_usd }) => sum + Number(hourly_usd), 0);
  const tookS = median(orders.flatMap(({ opened_at, certificate }) => (certificate ? [certificate.accepted_at - opened_at] : [])));
  return (
    <Stats>
      <Stat name="Auctions open" hint="Orders whose auction runs now">
        {count(orders.filter(({ state }) => state === "open").length)}
      </Stat>
      <Stat name="Decided in" unit="median" hint="From the lookup to the certificate on the chain, of the orders below. The chain counts whole seconds.">
        {tookS === null ? "–" : tookS < 1 ? "< 1 s" : `${count(tookS)} s`}
      </Stat>
      <Stat name="Leases held" hint="Of a provider that runs them or is about to">
        {count(active.length)}
      </Stat>
      <Stat name="Paid now" unit="/h" hint="By all leases held">
        {usd(hourly)}
      </Stat>
      <Stat name="Providers active" hint="With an address on the chain and a bond; they may bid">
        {count(providers.filter(({ status }) => status === "active").length)}
      </Stat>
      <Stat name="Validators voting">
        <Link href="/validators" className="hover:underline">
          {count(votersCount)}
        </Link>
      </Stat>
    </Stats>
  );
}
