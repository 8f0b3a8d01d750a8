import { useMutation, useQueryClient } from "@tanstack/react-query";
import type { FormEvent } from "react";
import { api } from "@/api/client";
import { useGet } from "@/api/queries";
import type { UptimeCreditEntry, UptimeFundPosting, UptimeFundReply } from "@/api/schema";
import { Button } from "@/components/Button";
import { DataTable, type Column } from "@/components/DataTable";
import { EmptyState, ErrorNotice, Loading } from "@/components/Notice";
import { Section } from "@/components/Page";
import { Stat, Stats } from "@/components/Stat";
import { Time } from "@/components/Time";
import { plural, shortId, usd } from "@/lib/format";

const PATH = "/v1/ledger/uptime";

const WHY_NOTHING: Record<string, string> = {
  own_provider: "nothing: renter and provider are one account",
  compensated: "nothing: bonds have compensated it",
  no_fee: "nothing: it paid no fee",
};

/** What credits renters whose leases were down, and its daily limit. */
export function UptimeFund() {
  const fund = useGet<UptimeFundReply>(PATH);
  const queries = useQueryClient();
  const funding = useMutation({
    mutationFn: (form: HTMLFormElement) => api<UptimeFundPosting>(`${PATH}/fund`, { body: { usd: new FormData(form).get("usd") } }),
    onSuccess: (_, form) => form.reset(),
    onSettled: () => queries.invalidateQueries({ queryKey: [PATH] }),
  });
  const onSubmit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    funding.mutate(event.currentTarget);
  };
  const held = fund.data?.fund;
  return (
    <Section title="Uptime credits">
      <p className="max-w-[72ch] text-muted">
        A lease that ended below {held?.goal_percent ?? "99.9"} % of uptime is credited what was lost beyond bonds, at most the network's fee of it. The daily limit is a setting of the gateway,
        uptime_credit_daily_usd.
      </p>
      <ErrorNotice error={fund.error ?? funding.error} />
      {fund.isPending && <Loading />}
      {held && (
        <Stats>
          <Stat name="Put aside">{usd(held.balance_usd)}</Stat>
          <Stat name="Daily limit">{usd(held.daily_limit_usd)}</Stat>
          <Stat name="Credited today">{usd(held.credited_today_usd)}</Stat>
          <Stat name="Waiting" unit={plural(held.waiting_leases, "lease")} hint="For the next day, or for money in the fund">
            {usd(held.waiting_usd)}
          </Stat>
        </Stats>
      )}
      {fund.data && (
        <DataTable id="uptime-credits" rows={fund.data.data} columns={COLUMNS} rowKey={(row) => row.order} empty={<EmptyState title="No lease has ended below it yet" />} />
      )}
      <form onSubmit={onSubmit} className="flex flex-wrap items-end gap-3">
        <label className="block space-y-1">
          <span>Dollars for uptime</span>
          <input className="field" name="usd" inputMode="decimal" pattern="[0-9]+([.][0-9]+)?" required />
        </label>
        <Button type="submit" disabled={funding.isPending}>
          Put aside
        </Button>
      </form>
    </Section>
  );
}

const COLUMNS: Column<UptimeCreditEntry>[] = [
  { name: "Lease", cell: (row) => <span className="num small">{shortId(row.lease)}</span> },
  { name: "Account", cell: (row) => <span className="num small">{shortId(row.account, 12)}</span> },
  { name: "Ended", cell: (row) => <Time at={row.ended_at} />, sortBy: (row) => row.ended_at },
  { name: "Uptime", cell: (row) => `${row.percent} %`, sortBy: (row) => Number(row.percent), isNumber: true },
  { name: "Due", cell: (row) => usd(row.due_usd), sortBy: (row) => Number(row.due_usd), isNumber: true },
  { name: "Credited", cell: (row) => (row.reason ? (WHY_NOTHING[row.reason] ?? row.reason) : row.credited_usd === null ? "waits" : usd(row.credited_usd)) },
];
