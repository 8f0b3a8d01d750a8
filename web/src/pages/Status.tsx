import { useMemo } from "react";
import { SPANS, useHistory, type Span } from "@/api/queries";
import { useFeed } from "@/feed/useFeed";
import { useChosen } from "@/lib/address";
import { count, ms, percent } from "@/lib/format";
import { DataTable } from "@/parts/DataTable";
import { HistoryChart, type Drawn } from "@/parts/History";
import { Empty, ErrorNote } from "@/parts/Note";
import { Page, Section } from "@/parts/Page";
import { Stat, Stats } from "@/parts/Stat";
import { Choice } from "@/parts/Tabs";
import { meaningOf } from "./status/meanings";

const CHARTS: Record<Span, Drawn[]> = { "24h": chartsPer("minute"), "30d": chartsPer("hour") };

function chartsPer(step: string): Drawn[] {
  return [
    {
      title: "Success",
      unit: "% of answers",
      lines: [{ name: "success", colour: "online", of: (point) => (point.success_rate === null ? null : point.success_rate * 100) }],
    },
    {
      title: "First token",
      unit: "ms",
      lines: [
        { name: "p50", colour: "busy", of: (point) => point.first_token_p50_ms },
        { name: "p95", colour: "suspect", of: (point) => point.first_token_p95_ms },
      ],
    },
    {
      title: "Jobs",
      unit: `per ${step}`,
      lines: [
        { name: "all", colour: "busy", of: (point) => point.jobs },
        { name: "failed", colour: "offline", of: (point) => point.failed },
      ],
    },
  ];
}

export default function Status() {
  const [span, setSpan] = useChosen<Span>("span", SPANS);
  const [network, errors] = [useHistory("network", span), useHistory("error", span)];
  const { connected, totals } = useFeed();
  const total = network.data?.totals[""];
  const codes = useMemo(
    () =>
      Object.entries(errors.data?.totals ?? {})
        .map(([code, figures]) => ({ code, times: figures.jobs }))
        .sort((a, b) => b.times - a.times),
    [errors.data],
  );
  return (
    <Page
      title="Is it working?"
      lead={connected ? "The gateway answers and its feed is live." : "The gateway's feed is not connected; the figures may be old."}
      actions={<Choice label="Time" value={span} options={SPANS} onChange={setSpan} />}
    >
      <ErrorNote error={network.error} />
      <Stats>
        <Stat name="Success" hint="Answers that did not fail, of all that were not cancelled">
          {percent(total?.success_rate)}
        </Stat>
        <Stat name="First token, p50">{ms(total?.first_token_p50_ms)}</Stat>
        <Stat name="First token, p95">{ms(total?.first_token_p95_ms)}</Stat>
        <Stat name="Jobs">{count(total?.jobs ?? 0)}</Stat>
        <Stat name="Failed">{count(total?.failed ?? 0)}</Stat>
        <Stat name="Running now">{count(totals?.jobs ?? 0)}</Stat>
      </Stats>
      <div className="grid gap-4 lg:grid-cols-3">
        {CHARTS[span].map((drawn) => (
          <HistoryChart key={drawn.title} history={network.data} drawn={drawn} />
        ))}
      </div>
      <Section title="Errors by code">
        <DataTable
          id="errors"
          rows={codes}
          rowKey={(row) => row.code}
          plain={(row) => ({ ...row })}
          empty={<Empty title="No error in this time" />}
          columns={[
            { name: "Code", cell: (row) => <code className="num">{row.code}</code>, by: (row) => row.code },
            { name: "What it means", cell: (row) => <span className="text-muted">{meaningOf(row.code)}</span> },
            { name: "Times", cell: (row) => count(row.times), by: (row) => row.times, isNumber: true },
          ]}
        />
      </Section>
    </Page>
  );
}
