import { useMutation, useQueryClient } from "@tanstack/react-query";
import { api } from "@/api/client";
import { useNetwork } from "@/api/queries";
import type { CreditPosting, DepositBody } from "@/api/schema";
import { Button } from "@/components/Button";
import { ErrorNotice } from "@/components/Notice";

const DEPOSIT: DepositBody = { usd: "10", adapter: "test" };

/** Adds test money; on a development network only. */
export function TestDeposit() {
  const network = useNetwork();
  const queries = useQueryClient();
  const deposit = useMutation({
    mutationFn: () => api<CreditPosting>("/v1/credits/deposit", { body: DEPOSIT }),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["/v1/credits"] }),
  });
  if (!network.data?.development) return null;
  return (
    <>
      <Button disabled={deposit.isPending} onClick={() => deposit.mutate()}>
        Add ${DEPOSIT.usd} of test money
      </Button>
      <ErrorNotice error={deposit.error} />
    </>
  );
}
