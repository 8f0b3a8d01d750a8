import { useMutation, useQueryClient } from "@tanstack/react-query";
import { api } from "@/api/client";
import { LEASES_PATH } from "@/api/queries";
import type { Lease, LeaseChanged } from "@/api/schema";
import { Button } from "@/components/Button";
import { ErrorNotice } from "@/components/Notice";

/** Ends a lease of one's own: an order without a provider is cancelled, a lease is closed. Nothing if it has ended. */
export function EndLease({ lease }: { lease: Lease }) {
  const client = useQueryClient();
  const act = endOf(lease);
  const end = useMutation({
    mutationFn: () => api<LeaseChanged>(`${LEASES_PATH}/${lease.id}/${act}`, { body: { id: `${act}-${lease.id}` } }),
    onSettled: () => client.invalidateQueries({ queryKey: [LEASES_PATH] }),
  });
  if (!act) return null;
  const word = act === "close" ? "Close" : "Cancel";
  const ask = () => {
    const isSure = act === "cancel" || window.confirm(`Close ${lease.name}? The machine is given up now. What is left of the deposit comes back to your credits.`);
    if (isSure) end.mutate();
  };
  return (
    <>
      <Button disabled={end.isPending || end.isSuccess} aria-label={`${word} ${lease.name}`} onClick={ask}>
        {end.isPending ? "Waiting for the chain …" : word}
      </Button>
      <ErrorNotice error={end.error} />
    </>
  );
}

/** Null if it has ended, or is not on the chain yet. */
function endOf({ phase }: Lease): "close" | "cancel" | null {
  return phase === "matched" ? "close" : phase === "open" || phase === "unmatched" ? "cancel" : null;
}
