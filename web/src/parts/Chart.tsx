import { useEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { short } from "@/lib/format";
import { useTheme } from "@/lib/theme";

export interface Line {
  name: string;
  values: (number | null)[];
  colour: string;
}

interface Props {
  title: string;
  unit: string;
  times: number[];
  /** A young line has this much room at its left, so that its axis does not say one minute six times. */
  spanMinS: number;
  lines: Line[];
  height?: number;
}

function token(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Hours and minutes within two days, else the day. */
function clock(unixS: number, spanS: number): string {
  return spanS <= 2 * 86_400 ? new Date(unixS * 1000).toTimeString().slice(0, 5) : new Date(unixS * 1000).toISOString().slice(5, 10);
}

/** Lines over time. The figures are in the table's download too; a screen reader hears the last ones. */
export default function Chart({ title, unit, times, spanMinS, lines, height = 130 }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const theme = useTheme();
  const known = Math.max(0, ...lines.map((line) => line.values.filter((value) => value !== null).length));
  const isLine = known > 1;
  useEffect(() => {
    const element = box.current;
    if (!element || !isLine) return;
    const spanS = Math.max(spanMinS, (times.at(-1) ?? 0) - (times[0] ?? 0));
    const axis = { stroke: token("muted"), grid: { stroke: token("line"), width: 1 }, ticks: { show: false } };
    const plot = new uPlot(
      {
        width: element.clientWidth,
        height,
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false } },
        padding: [8, 20, 0, 0],
        axes: [{ ...axis, size: 28, values: (_, marks) => marks.map((mark) => clock(mark, spanS)) }, { ...axis, size: 48, values: (_, marks) => marks.map((mark) => short(mark)) }],
        scales: { x: { range: (_, __, high) => [high - spanS, high] }, y: { range: (_, __, high) => [0, high > 0 ? high * 1.1 : 1] } },
        series: [{}, ...lines.map((line) => ({ label: line.name, stroke: token(line.colour), width: 1.5, points: { size: 4 } }))],
      },
      [times, ...lines.map((line) => line.values)] as uPlot.AlignedData,
      element,
    );
    const seen = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height }));
    seen.observe(element);
    return () => {
      seen.disconnect();
      plot.destroy();
    };
  }, [times, spanMinS, lines, isLine, height, theme]);
  const last = lines.map((line) => `${line.name} ${short(line.values.findLast((value) => value !== null) ?? 0)} ${unit}`);
  return (
    <figure className="card min-w-0 p-3">
      <figcaption className="small flex flex-wrap justify-between gap-2">
        <span>
          {title} <span className="text-muted">{unit}</span>
        </span>
        <span className="flex gap-3 text-muted">
          {lines.length > 1 &&
            lines.map((line) => (
              <span key={line.name} className="flex items-center gap-1">
                <span aria-hidden className="inline-block h-0.5 w-3" style={{ background: `var(--${line.colour})` }} />
                {line.name}
              </span>
            ))}
        </span>
      </figcaption>
      {isLine ? (
        <div ref={box} role="img" aria-label={`${title}: ${last.join(", ")}`} className="mt-2 w-full" style={{ height }} />
      ) : (
        <p className="small mt-2 grid place-items-center text-muted" style={{ height }}>
          {known ? `So far: ${last.join(", ")}` : "No data yet"}
        </p>
      )}
    </figure>
  );
}
