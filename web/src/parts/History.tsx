import { lazy, Suspense, useMemo } from "react";
import type { Figures, History, Point } from "@/api/types";
import type { Line } from "./Chart";

const Chart = lazy(() => import("./Chart"));

const STEPS_MIN = 12;

export interface Drawn {
  title: string;
  unit: string;
  lines: { name: string; colour: string; of: (point: Figures) => number | null }[];
}

/** A history as one chart: gaps where the network was not there. */
export function HistoryChart({ history, drawn }: { history: History | undefined; drawn: Drawn }) {
  const { times, lines } = useMemo(() => aligned(history, drawn), [history, drawn]);
  const blank = <div className="card h-[190px]" />;
  if (!history) return blank;
  return (
    <Suspense fallback={blank}>
      <Chart title={drawn.title} unit={drawn.unit} times={times} spanMinS={history.step_s * STEPS_MIN} lines={lines} />
    </Suspense>
  );
}

function aligned(history: History | undefined, drawn: Drawn): { times: number[]; lines: Line[] } {
  const filled = history ? withGaps(history.data, history.step_s) : [];
  return {
    times: filled.map(([at]) => at),
    lines: drawn.lines.map(({ name, colour, of }) => ({
      name,
      colour,
      values: filled.map(([, point]) => (point ? of(point) : null)),
    })),
  };
}

function withGaps(points: Point[], stepS: number): [number, Point | null][] {
  const filled: [number, Point | null][] = [];
  for (const point of points) {
    const last = filled.at(-1);
    if (last && point.at - last[0] > stepS * 1.5) filled.push([last[0] + stepS, null]);
    filled.push([point.at, point]);
  }
  return filled;
}
