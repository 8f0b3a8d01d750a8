import { useEffect, useState } from "react";

/** The time in milliseconds, renewed every `everyMs` while it is on: for countdowns. */
export function useTick(everyMs: number, isOn: boolean): number {
  const [nowMs, setNowMs] = useState(() => Date.now());
  useEffect(() => {
    if (!isOn) return;
    const timer = window.setInterval(() => setNowMs(Date.now()), everyMs);
    return () => window.clearInterval(timer);
  }, [everyMs, isOn]);
  return nowMs;
}
