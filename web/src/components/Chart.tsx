import { useEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { short } from "@/lib/format";
import { cssVariable, useTheme } from "@/lib/theme";

export interface Series {
  name: string;
  values: (number | null)[];
  /** A CSS variable. */
  colour: string;
}

interface Props {
  title: string;
  unit: string;
  times: number[];
  /** The axis covers at least this much time: with less, all its labels would name the same minute. */
  spanMinS: number;
  series: Series[];
}

const HEIGHT_PX = 130;

/** Hours and minutes within two days, else month and day. */
function timeLabel(unixS: number, spanS: number): string {
  const time = new Date(unixS * 1000);
  return spanS <= 2 * 86_400 ? time.toTimeString().slice(0, 5) : time.toISOString().slice(5, 10);
}

function optionsOf(series: Series[], spanS: number, width: number): uPlot.Options {
  const axis = { stroke: cssVariable("muted"), grid: { stroke: cssVariable("line"), width: 1 }, ticks: { show: false } };
  return {
    width,
    height: HEIGHT_PX,
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false } },
    padding: [8, 20, 0, 0],
    axes: [
      { ...axis, size: 28, values: (_, ticks) => ticks.map((tick) => timeLabel(tick, spanS)) },
      { ...axis, size: 48, values: (_, ticks) => ticks.map(short) },
    ],
    scales: {
      x: { range: (_, __, high) => [high - spanS, high] },
      y: { range: (_, __, high) => [0, high > 0 ? high * 1.1 : 1] },
    },
    series: [{}, ...series.map(({ name, colour }) => ({ label: name, stroke: cssVariable(colour), width: 1.5, points: { size: 4 } }))],
  };
}

/** A line chart over time. Screen readers get the last value of each series. */
export default function Chart({ title, unit, times, spanMinS, series }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const theme = useTheme();
  const valuesMax = Math.max(0, ...series.map(({ values }) => values.filter((value) => value !== null).length));
  const isLine = valuesMax > 1;
  useEffect(() => {
    const element = box.current;
    if (!element || !isLine) return;
    const spanS = Math.max(spanMinS, (times.at(-1) ?? 0) - (times[0] ?? 0));
    const data = [times, ...series.map(({ values }) => values)] as uPlot.AlignedData;
    const plot = new uPlot(optionsOf(series, spanS, element.clientWidth), data, element);
    const observer = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: HEIGHT_PX }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.destroy();
    };
  }, [times, spanMinS, series, isLine, theme]);
  const latest = series.map(({ name, values }) => `${name} ${short(values.findLast((value) => value !== null) ?? 0)} ${unit}`).join(", ");
  return (
    <figure className="card min-w-0 p-3">
      <figcaption className="small flex flex-wrap justify-between gap-2">
        <span>
          {title} <span className="text-muted">{unit}</span>
        </span>
        <span className="flex gap-3 text-muted">
          {series.length > 1 &&
            series.map(({ name, colour }) => (
              <span key={name} className="flex items-center gap-1">
                <span aria-hidden className="inline-block h-0.5 w-3" style={{ background: `var(--${colour})` }} />
                {name}
              </span>
            ))}
        </span>
      </figcaption>
      {isLine ? (
        <div ref={box} role="img" aria-label={`${title}: ${latest}`} className="mt-2 w-full" style={{ height: HEIGHT_PX }} />
      ) : (
        <p className="small mt-2 grid place-items-center text-muted" style={{ height: HEIGHT_PX }}>
          {valuesMax ? `So far: ${latest}` : "No data yet"}
        </p>
      )}
    </figure>
  );
}
