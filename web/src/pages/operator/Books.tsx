import { useGet } from "@/api/queries";
import type { LedgerAudit } from "@/api/schema";
import { Button } from "@/components/Button";
import { ErrorNotice, Loading } from "@/components/Notice";
import { Section } from "@/components/Page";
import { Stat, Stats } from "@/components/Stat";

/** The audit of the books, made when the page is opened and on demand: it reads every posting. */
export function Books() {
  const audit = useGet<LedgerAudit>("/v1/ledger/audit", false);
  return (
    <Section
      title="Books"
      aside={
        <Button onClick={() => void audit.refetch()} disabled={audit.isFetching}>
          {audit.isFetching ? "Auditing …" : "Audit again"}
        </Button>
      }
    >
      <ErrorNotice error={audit.error} />
      {audit.isPending && <Loading />}
      {audit.data && (
        <Stats>
          <Stat name="Books" hint="Every posting has its counterpart, and no account has less than nothing.">
            <span data-testid="books" className={audit.data.in_order ? "" : "text-offline"}>
              {audit.data.in_order ? "in order" : "not in order"}
            </span>
          </Stat>
          <Stat name="Sum of all postings" hint="0 is right.">
            {audit.data.sum_nano}
          </Stat>
          <Stat name="Wrong balances">{audit.data.wrong_balances}</Stat>
          <Stat name="Overdrawn">{audit.data.overdrawn}</Stat>
          <Stat name="Chain" hint={audit.data.chain_note ?? "The books against the contracts' own views, to the unit."}>
            {chainText(audit.data)}
          </Stat>
        </Stats>
      )}
    </Section>
  );
}

function chainText({ chain, chain_note }: LedgerAudit): string {
  if (!chain) return chain_note ? "not compared" : "none";
  return chain.in_order ? `agrees at block ${chain.block}` : `${chain.differences.length} differences`;
}
