import { lazy, Suspense, useMemo } from "react";
import type { HistoryFigures, HistoryPoint, NetworkHistory } from "@/api/schema";

const Chart = lazy(() => import("./Chart"));

const STEPS_MIN = 12;

/** Which figures of a history one chart shows. */
export interface ChartSpec {
  title: string;
  unit: string;
  series: { name: string; colour: string; value: (figures: HistoryFigures) => number | null }[];
}

/** One chart of the network's history. It has a gap where the gateway recorded nothing. */
export function HistoryChart({ history, spec }: { history: NetworkHistory | undefined; spec: ChartSpec }) {
  const { times, series } = useMemo(() => {
    const points = history ? withGaps(history.data, history.step_s) : [];
    return {
      times: points.map(([at]) => at),
      series: spec.series.map(({ value, ...one }) => ({ ...one, values: points.map(([, point]) => point && value(point)) })),
    };
  }, [history, spec]);
  const placeholder = <div className="card h-[190px]" />;
  if (!history) return placeholder;
  return (
    <Suspense fallback={placeholder}>
      <Chart title={spec.title} unit={spec.unit} times={times} spanMinS={history.step_s * STEPS_MIN} series={series} />
    </Suspense>
  );
}

function withGaps(points: HistoryPoint[], stepS: number): [number, HistoryPoint | null][] {
  const filled: [number, HistoryPoint | null][] = [];
  for (const point of points) {
    const last = filled.at(-1);
    if (last && point.at - last[0] > stepS * 1.5) filled.push([last[0] + stepS, null]);
    filled.push([point.at, point]);
  }
  return filled;
}
