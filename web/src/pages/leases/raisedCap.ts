interface Addition {
  deposited: string;
  amount: string;
  maxSpend: string | null;
}

/** What a lease may cost at most after this addition; null if its cap stays, or it has none. */
export function raisedCap({ deposited, amount, maxSpend }: Addition): string | null {
  const total = Number(deposited) + Number(amount);
  if (maxSpend === null || !Number.isFinite(total) || total <= Number(maxSpend)) return null;
  return (Math.ceil(total * 1e6 - 1e-3) / 1e6).toFixed(6).replace(/\.?0+$/, "");
}
