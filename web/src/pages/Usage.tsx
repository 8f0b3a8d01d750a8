import { useMemo } from "react";
import { Link, useLocation } from "wouter";
import { useCredits, useJobs, useKeys, useMatches, useUsage } from "@/api/queries";
import type { CreditBalance, JobUsage, MatchSummary, UsageGroup } from "@/api/schema";
import { DataTable, type Column } from "@/components/DataTable";
import { FirstRequest } from "@/components/FirstRequest";
import { EmptyState, ErrorNotice } from "@/components/Notice";
import { Page, Section } from "@/components/Page";
import { SegmentedControl } from "@/components/SegmentedControl";
import { Stat, Stats } from "@/components/Stat";
import { Time } from "@/components/Time";
import { capitalized, count, nodeLabel, shortId, usd } from "@/lib/format";
import { useQueryChoice } from "@/lib/urlState";
import { MatchDrawer } from "@/match/MatchDrawer";
import { Outcome } from "@/match/Outcome";
import { TestDeposit } from "./usage/TestDeposit";

/** Requests of the playground have a session instead of a key. */
const NO_KEY = "the dashboard";
const GROUPINGS = ["day", "model", "key"] as const;

export default function Usage({ id }: { id: string | null }) {
  const [by, setBy] = useQueryChoice("by", GROUPINGS);
  const [credits, usage, jobs, keys, matches] = [useCredits(), useUsage(by), useJobs(), useKeys(), useMatches(true)];
  const [, navigate] = useLocation();
  const keyNames = useMemo(() => new Map((keys.data?.data ?? []).map((key) => [key.id, key.name])), [keys.data]);
  const groups = usage.data?.data ?? [];
  const groupColumns = useMemo(() => groupColumnsOf(by, keyNames), [by, keyNames]);
  const jobColumns = useMemo(() => jobColumnsOf(matches.data?.data ?? [], keyNames), [matches.data, keyNames]);
  return (
    <Page
      title="Usage"
      lead="Your requests of the last 30 days, and what they cost."
      actions={
        <>
          <TestDeposit />
          <a className="link small" href="/v1/usage?by=job&format=csv&limit=1000">
            Statement, CSV
          </a>
          <a className="link small" href="/v1/usage?by=job&limit=1000">
            JSON
          </a>
        </>
      }
    >
      <ErrorNotice error={credits.error ?? usage.error ?? jobs.error} />
      {credits.data && <CreditStats credits={credits.data.data} groups={groups} />}
      <Section title="Spending" aside={<SegmentedControl label="By" value={by} options={GROUPINGS} onChange={setBy} />}>
        <DataTable id="spend" rows={groups} columns={groupColumns} rowKey={(row) => row.name} empty={<NoRequest />} />
      </Section>
      <Section title="Requests">
        <DataTable
          id="requests"
          rows={jobs.data?.data ?? []}
          columns={jobColumns}
          rowKey={(row) => row.id}
          onOpen={(row) => navigate(`/usage/${row.id}`)}
          empty={<NoRequest />}
        />
      </Section>
      {id && <MatchDrawer id={id} job={jobs.data?.data.find((job) => job.id === id)} onClose={() => navigate("/usage")} />}
    </Page>
  );
}

function CreditStats({ credits, groups }: { credits: CreditBalance; groups: UsageGroup[] }) {
  return (
    <Stats>
      <Stat name="Credits left">{usd(credits.balance_usd)}</Stat>
      <Stat name="Free credits" hint="A part of the credits left. They are spent first.">
        {usd(credits.promo_usd)}
      </Stat>
      <Stat name="Free credits expire">{credits.promo_expires_at === null ? "–" : <Time at={credits.promo_expires_at} />}</Stat>
      <Stat name="Reserved" hint="Held by a gateway for requests that run or may come next. What they do not cost comes back.">
        {usd(credits.reserved_usd)}
      </Stat>
      <Stat name="Spent, 30 d">{usd(groups.reduce((sum, group) => sum + Number(group.cost_usd), 0))}</Stat>
      <Stat name="Requests, 30 d">{count(groups.reduce((sum, group) => sum + group.jobs, 0))}</Stat>
    </Stats>
  );
}

function NoRequest() {
  return (
    <EmptyState title="No request yet">
      <FirstRequest />
    </EmptyState>
  );
}

function groupColumnsOf(by: string, keyNames: Map<string, string>): Column<UsageGroup>[] {
  return [
    { name: capitalized(by), cell: ({ name }) => (by === "key" ? (keyNames.get(name) ?? NO_KEY) : name), sortBy: (row) => row.name },
    { name: "Requests", cell: (row) => count(row.jobs), sortBy: (row) => row.jobs, isNumber: true },
    { name: "Tokens in", cell: (row) => count(row.prompt_tokens), sortBy: (row) => row.prompt_tokens, isNumber: true },
    { name: "Tokens out", cell: (row) => count(row.completion_tokens), sortBy: (row) => row.completion_tokens, isNumber: true },
    { name: "Cost", cell: (row) => usd(row.cost_usd), sortBy: (row) => Number(row.cost_usd), isNumber: true },
    { name: "Paid with free credits", cell: (row) => usd(row.promo_usd), sortBy: (row) => Number(row.promo_usd), isNumber: true },
  ];
}

/** Attempts are shown as long as the gateway stores the match. */
function jobColumnsOf(matches: MatchSummary[], keyNames: Map<string, string>): Column<JobUsage>[] {
  const attempts = new Map(matches.map((match) => [match.match_id, match.attempts.map(nodeLabel).join(" → ")]));
  return [
    { name: "Time", cell: (row) => <Time at={Date.parse(row.opened_at) / 1000} />, sortBy: (row) => row.opened_at },
    {
      name: "Request",
      cell: (row) => (
        <Link href={`/usage/${row.id}`} className="num small link">
          {shortId(row.id, 14)}
        </Link>
      ),
    },
    { name: "Key", cell: (row) => keyNames.get(row.key_id) ?? NO_KEY, sortBy: (row) => keyNames.get(row.key_id) ?? "" },
    { name: "Model", cell: (row) => row.model, sortBy: (row) => row.model },
    { name: "Attempts", cell: (row) => attempts.get(row.id) ?? "–" },
    { name: "Tokens in / out", cell: (row) => `${count(row.prompt_tokens)} / ${count(row.completion_tokens)}`, isNumber: true },
    { name: "Cost", cell: (row) => usd(row.cost_usd), sortBy: (row) => Number(row.cost_usd), isNumber: true },
    { name: "Outcome", cell: (row) => <Outcome of={row.state} />, sortBy: (row) => row.state },
  ];
}
