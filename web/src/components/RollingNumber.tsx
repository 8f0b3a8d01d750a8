import { useEffect, useRef, useState } from "react";
import { prefersReducedMotion } from "@/lib/motion";

const ROLL_MS = 400;

/** A number that counts up or down to its new value. */
export function RollingNumber({ value, format }: { value: number; format: (value: number) => string }) {
  const [shown, setShown] = useState(value);
  const last = useRef(value);
  useEffect(() => {
    const [from, beganMs] = [last.current, performance.now()];
    last.current = value;
    if (prefersReducedMotion() || from === value) {
      setShown(value);
      return;
    }
    let frame = 0;
    const roll = (nowMs: number) => {
      const share = Math.min(1, Math.max(0, (nowMs - beganMs) / ROLL_MS));
      setShown(from + (value - from) * (1 - (1 - share) ** 3));
      if (share < 1) frame = requestAnimationFrame(roll);
    };
    frame = requestAnimationFrame(roll);
    return () => cancelAnimationFrame(frame);
  }, [value]);
  return <span className="num">{format(shown)}</span>;
}
