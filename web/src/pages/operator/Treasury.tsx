import { useMutation, useQueryClient } from "@tanstack/react-query";
import type { FormEvent } from "react";
import { api } from "@/api/client";
import { useGet } from "@/api/queries";
import type { TreasuryPosting, TreasuryReply } from "@/api/schema";
import { Button } from "@/components/Button";
import { ErrorNotice, Loading } from "@/components/Notice";
import { Section } from "@/components/Page";
import { Stat, Stats } from "@/components/Stat";
import { usd } from "@/lib/format";

const PATH = "/v1/treasury";

/** What pays owners for answers that were asked for with free credits. */
export function Treasury() {
  const treasury = useGet<TreasuryReply>(PATH);
  const queries = useQueryClient();
  const funding = useMutation({
    mutationFn: (form: HTMLFormElement) => api<TreasuryPosting>(`${PATH}/fund`, { body: { usd: new FormData(form).get("usd") } }),
    onSuccess: (_, form) => form.reset(),
    onSettled: () => queries.invalidateQueries({ queryKey: [PATH] }),
  });
  const onSubmit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    funding.mutate(event.currentTarget);
  };
  const held = treasury.data?.data;
  return (
    <Section title="Treasury">
      <p className="max-w-[72ch] text-muted">It makes what owners earned with free credits payable, up to a daily budget.</p>
      <ErrorNotice error={treasury.error ?? funding.error} />
      {treasury.isPending && <Loading />}
      {held && (
        <Stats>
          <Stat name="Balance">{usd(Number(held.balance_usd))}</Stat>
          <Stat name="Daily budget">{usd(Number(held.daily_budget_usd))}</Stat>
          <Stat name="Paid today">{usd(Number(held.redeemed_today_usd))}</Stat>
        </Stats>
      )}
      <form onSubmit={onSubmit} className="flex flex-wrap items-end gap-3">
        <label className="block space-y-1">
          <span>Dollars to add</span>
          <input className="field" name="usd" inputMode="decimal" pattern="[0-9]+([.][0-9]+)?" required />
        </label>
        <Button type="submit" disabled={funding.isPending}>
          Fund
        </Button>
      </form>
    </Section>
  );
}
