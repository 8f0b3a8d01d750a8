/** A small chart without axes. Unknown values are gaps. */
export function Sparkline({ values, label, max }: { values: (number | null)[]; label: string; max?: number }) {
  const top = max ?? Math.max(1e-9, ...values.map((value) => value ?? 0));
  const step = 100 / Math.max(1, values.length - 1);
  let path = "";
  values.forEach((value, at) => {
    if (value === null) return;
    const isStart = at === 0 || values[at - 1] === null;
    const isAlone = isStart && (values[at + 1] ?? null) === null;
    path += `${isStart ? "M" : "L"}${(at * step).toFixed(1)} ${(23 - (value / top) * 22).toFixed(1)}${isAlone ? "h1" : ""}`;
  });
  return (
    <svg viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label={label} className="h-6 w-28">
      <path d={path} fill="none" stroke="currentColor" strokeWidth="2" strokeLinecap="round" vectorEffect="non-scaling-stroke" />
    </svg>
  );
}
