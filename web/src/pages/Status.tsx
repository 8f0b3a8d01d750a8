import { useMemo } from "react";
import { SPANS, useHistory, type Span } from "@/api/queries";
import { DataTable } from "@/components/DataTable";
import { HistoryChart, type ChartSpec } from "@/components/HistoryChart";
import { EmptyState, ErrorNotice } from "@/components/Notice";
import { Page, Section } from "@/components/Page";
import { SegmentedControl } from "@/components/SegmentedControl";
import { Stat, Stats } from "@/components/Stat";
import { useFeed } from "@/feed/useFeed";
import { count, ms, percent } from "@/lib/format";
import { useQueryChoice } from "@/lib/urlState";
import { errorMeaning } from "./status/errorMeanings";

const CHARTS: Record<Span, ChartSpec[]> = { "24h": chartsPer("minute"), "30d": chartsPer("hour") };

function chartsPer(step: string): ChartSpec[] {
  return [
    {
      title: "Success",
      unit: "% of answers",
      series: [{ name: "success", colour: "online", value: ({ success_rate }) => success_rate && success_rate * 100 }],
    },
    {
      title: "First token",
      unit: "ms",
      series: [
        { name: "p50", colour: "busy", value: (figures) => figures.first_token_p50_ms },
        { name: "p95", colour: "suspect", value: (figures) => figures.first_token_p95_ms },
      ],
    },
    {
      title: "Jobs",
      unit: `per ${step}`,
      series: [
        { name: "all", colour: "busy", value: (figures) => figures.jobs },
        { name: "failed", colour: "offline", value: (figures) => figures.failed },
      ],
    },
  ];
}

export default function Status() {
  const [span, setSpan] = useQueryChoice<Span>("span", SPANS);
  const [network, errors] = [useHistory("network", span), useHistory("error", span)];
  const { connected, totals } = useFeed();
  const figures = network.data?.totals[""];
  const errorCounts = useMemo(() => {
    const counts = Object.entries(errors.data?.totals ?? {}).map(([code, { jobs }]) => ({ code, times: jobs }));
    return counts.sort((a, b) => b.times - a.times);
  }, [errors.data]);
  return (
    <Page
      title="Is it working?"
      lead={connected ? "The gateway answers, and its live feed is connected." : "The gateway's live feed is not connected; the figures may be old."}
      actions={<SegmentedControl label="Time" value={span} options={SPANS} onChange={setSpan} />}
    >
      <ErrorNotice error={network.error} />
      <Stats>
        <Stat name="Success" hint="The share of jobs that did not fail; cancelled ones are left out">
          {percent(figures?.success_rate)}
        </Stat>
        <Stat name="First token, p50">{ms(figures?.first_token_p50_ms)}</Stat>
        <Stat name="First token, p95">{ms(figures?.first_token_p95_ms)}</Stat>
        <Stat name="Jobs">{count(figures?.jobs ?? 0)}</Stat>
        <Stat name="Failed">{count(figures?.failed ?? 0)}</Stat>
        <Stat name="Running now">{count(totals?.jobs ?? 0)}</Stat>
      </Stats>
      <div className="grid gap-4 lg:grid-cols-3">
        {CHARTS[span].map((spec) => (
          <HistoryChart key={spec.title} history={network.data} spec={spec} />
        ))}
      </div>
      <Section title="Errors by code">
        <DataTable
          id="errors"
          rows={errorCounts}
          rowKey={(row) => row.code}
          empty={<EmptyState title="No error in this time" />}
          columns={[
            { name: "Code", cell: (row) => <code className="num">{row.code}</code>, sortBy: (row) => row.code },
            { name: "Meaning", cell: (row) => <span className="text-muted">{errorMeaning(row.code)}</span> },
            { name: "Times", cell: (row) => count(row.times), sortBy: (row) => row.times, isNumber: true },
          ]}
        />
      </Section>
    </Page>
  );
}
