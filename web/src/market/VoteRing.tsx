import type { VoteCount } from "./stake";

const RADIUS = 16;
const AROUND = 2 * Math.PI * RADIUS;
const THRESHOLD = 2 / 3;
/** In a smaller ring the tick would be a blot. */
const TICK_FROM_PX = 32;

/** Votes as a ring that fills up to the threshold, which is a tick at two thirds if it is large enough. */
export function VoteRing({ votes, label, sizePx = 40 }: { votes: VoteCount; label: string; sizePx?: number }) {
  const angle = 2 * Math.PI * THRESHOLD - Math.PI / 2;
  const at = (radius: number) => ({ x: 20 + radius * Math.cos(angle), y: 20 + radius * Math.sin(angle) });
  const [inner, outer] = [at(RADIUS - 4), at(RADIUS + 4)];
  return (
    <svg viewBox="0 0 40 40" width={sizePx} height={sizePx} role="img" aria-label={label} className="shrink-0">
      <circle cx="20" cy="20" r={RADIUS} fill="none" strokeWidth="4" className="stroke-line" />
      <circle
        cx="20"
        cy="20"
        r={RADIUS}
        fill="none"
        strokeWidth="4"
        strokeDasharray={`${votes.share * AROUND} ${AROUND}`}
        transform="rotate(-90 20 20)"
        className={`transition-[stroke-dasharray] duration-300 ${votes.isQuorum ? "stroke-online" : "stroke-busy"}`}
      />
      {sizePx >= TICK_FROM_PX && <line x1={inner.x} y1={inner.y} x2={outer.x} y2={outer.y} strokeWidth="2" className="stroke-text" />}
    </svg>
  );
}
