import { useMemo } from "react";
import { Link, useLocation } from "wouter";
import { useCredits, useJobs, useKeys, useMatches, useUsage } from "@/api/queries";
import type { JobLine, MatchLine, UsageLine } from "@/api/types";
import { useChosen } from "@/lib/address";
import { count, usd } from "@/lib/format";
import { MatchDrawer } from "@/match/MatchDrawer";
import { Outcome } from "@/match/Outcome";
import { DataTable, type Column } from "@/parts/DataTable";
import { FirstQuestion } from "@/parts/FirstQuestion";
import { Empty, ErrorNote } from "@/parts/Note";
import { Page, Section } from "@/parts/Page";
import { Stat, Stats } from "@/parts/Stat";
import { Choice } from "@/parts/Tabs";
import { Time } from "@/parts/Time";
import { TestMoney } from "./usage/TestMoney";

/** What is asked in a browser has no key. */
const DASHBOARD = "the dashboard";
const BY = ["day", "model", "key"] as const;

export default function Usage({ id }: { id: string | null }) {
  const [by, setBy] = useChosen("by", BY);
  const [credits, usage, jobs, keys] = [useCredits(true), useUsage(by), useJobs(), useKeys()];
  const matches = useMatches(true);
  const [, go] = useLocation();
  const names = useMemo(() => new Map((keys.data?.data ?? []).map((key) => [key.id, key.name])), [keys.data]);
  const lines = usage.data?.data ?? [];
  const spent = lines.reduce((sum, line) => sum + Number(line.cost_usd), 0);
  const columns = useMemo(() => columnsBy(by, names), [by, names]);
  const jobColumns = useMemo(() => columnsOf(matches.data?.data ?? [], names), [matches.data, names]);
  return (
    <Page
      title="Usage"
      lead="What was asked in the last 30 days, and what it cost."
      actions={
        <>
          <TestMoney />
          <a className="link small" href="/v1/usage?by=job&format=csv&limit=1000">
            Statement, CSV
          </a>
          <a className="link small" href="/v1/usage?by=job&limit=1000">
            JSON
          </a>
        </>
      }
    >
      <ErrorNote error={credits.error ?? usage.error ?? jobs.error} />
      {credits.data && (
        <Stats>
          <Stat name="Credits left">{usd(credits.data.data.balance_usd)}</Stat>
          <Stat name="Of those free">{usd(credits.data.data.promo_usd)}</Stat>
          <Stat name="Free ones end">
            {credits.data.data.promo_expires_at === null ? "–" : <Time at={credits.data.data.promo_expires_at} />}
          </Stat>
          <Stat name="Reserved" hint="Set aside by a gateway for what runs or may be asked next. What it does not need comes back.">{usd(credits.data.data.reserved_usd)}</Stat>
          <Stat name="Spent, 30 d">{usd(spent)}</Stat>
          <Stat name="Requests, 30 d">{count(lines.reduce((sum, line) => sum + line.jobs, 0))}</Stat>
        </Stats>
      )}
      <Section title="Spend" aside={<Choice label="By" value={by} options={BY} onChange={setBy} />}>
        <DataTable id="spend" rows={lines} columns={columns} rowKey={(row) => row.name} plain={(row) => ({ ...row })} empty={<Nothing />} />
      </Section>
      <Section title="Requests">
        <DataTable
          id="requests"
          rows={jobs.data?.data ?? []}
          columns={jobColumns}
          rowKey={(row) => row.id}
          plain={(row) => ({ ...row })}
          onOpen={(row) => go(`/usage/${row.id}`)}
          empty={<Nothing />}
        />
      </Section>
      {id && <MatchDrawer id={id} paid={jobs.data?.data.find((job) => job.id === id)} onClose={() => go("/usage")} />}
    </Page>
  );
}

function Nothing() {
  return (
    <Empty title="Nothing was asked yet">
      <FirstQuestion />
    </Empty>
  );
}

function columnsBy(by: string, names: Map<string, string>): Column<UsageLine>[] {
  return [
    { name: by.replace(/^./, (first) => first.toUpperCase()), cell: (row) => names.get(row.name) ?? (by === "key" ? DASHBOARD : row.name), by: (row) => row.name },
    { name: "Requests", cell: (row) => count(row.jobs), by: (row) => row.jobs, isNumber: true },
    { name: "Tokens in", cell: (row) => count(row.prompt_tokens), by: (row) => row.prompt_tokens, isNumber: true },
    { name: "Tokens out", cell: (row) => count(row.completion_tokens), by: (row) => row.completion_tokens, isNumber: true },
    { name: "Cost", cell: (row) => usd(row.cost_usd), by: (row) => Number(row.cost_usd), isNumber: true },
    { name: "Of it free", cell: (row) => usd(row.promo_usd), by: (row) => Number(row.promo_usd), isNumber: true },
  ];
}

/** Attempts of those whose match is still kept. */
function columnsOf(matches: MatchLine[], keys: Map<string, string>): Column<JobLine>[] {
  const attempts = new Map(matches.map((match) => [match.match_id, match.attempts]));
  return [
    { name: "When", cell: (row) => <Time at={Date.parse(row.opened_at) / 1000} />, by: (row) => row.opened_at },
    {
      name: "Request",
      cell: (row) => (
        <Link href={`/usage/${row.id}`} className="num small link">
          {row.id.slice(0, 14)}…
        </Link>
      ),
    },
    { name: "Key", cell: (row) => keys.get(row.key_id) ?? DASHBOARD, by: (row) => keys.get(row.key_id) ?? "" },
    { name: "Model", cell: (row) => row.model, by: (row) => row.model },
    { name: "Attempts", cell: (row) => attempts.get(row.id)?.map((one) => one.name ?? `${one.node.slice(0, 10)}…`).join(" → ") ?? "–" },
    { name: "Tokens in / out", cell: (row) => `${count(row.prompt_tokens)} / ${count(row.completion_tokens)}`, isNumber: true },
    { name: "Cost", cell: (row) => usd(row.cost_usd), by: (row) => Number(row.cost_usd), isNumber: true },
    { name: "State", cell: (row) => <Outcome of={row.state} />, by: (row) => row.state },
  ];
}
