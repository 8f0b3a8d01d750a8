import { useMutation, useQueryClient } from "@tanstack/react-query";
import { api } from "@/api/client";
import { useNetwork } from "@/api/queries";
import { Button } from "@/parts/Button";
import { ErrorNote } from "@/parts/Note";

const AMOUNT = "10";

/** On a network to try things on, money comes out of nothing. */
export function TestMoney() {
  const network = useNetwork();
  const queries = useQueryClient();
  const deposit = useMutation({
    mutationFn: () => api("/v1/credits/deposit", { body: { usd: AMOUNT, adapter: "test" } }),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["/v1/credits"] }),
  });
  if (!network.data?.development) return null;
  return (
    <>
      <Button disabled={deposit.isPending} onClick={() => deposit.mutate()}>
        Add ${AMOUNT} of test money
      </Button>
      <ErrorNote error={deposit.error} />
    </>
  );
}
