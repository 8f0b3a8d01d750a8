import { useMarketValidators, useNetwork } from "@/api/queries";
import type { MarketValidator, MarketValidatorList } from "@/api/schema";
import { CopyableText } from "@/components/CopyableText";
import { DataTable, type Column } from "@/components/DataTable";
import { LastKnown } from "@/components/LastKnown";
import { EmptyState, ErrorNotice, Loading, NoChain } from "@/components/Notice";
import { Page, Section } from "@/components/Page";
import { Stat, Stats } from "@/components/Stat";
import { Time } from "@/components/Time";
import { count, percent, shortId, usd } from "@/lib/format";
import { StakeBar } from "@/market/StakeBar";
import { shareOf, uusd } from "@/market/stake";

export default function Validators() {
  const network = useNetwork();
  return (
    <Page
      title="Validators"
      lead="They take the bids, vote on each auction and on the table of providers, and answer for it with their stake. Every count here is made of signatures: no validator's word is needed."
    >
      <ErrorNotice error={network.error} />
      {network.isPending && <Loading />}
      {network.data && (network.data.chain ? <ValidatorTables /> : <NoChain what="Validators" />)}
    </Page>
  );
}

function ValidatorTables() {
  const validators = useMarketValidators();
  if (!validators.data) return validators.error ? <ErrorNotice error={validators.error} /> : <Loading />;
  const list = validators.data;
  const rows = list.data.map((one): Row => ({ ...one, share: shareOf(uusd(one.weight_usd), uusd(list.total_usd)) }));
  return (
    <LastKnown error={validators.error} seenMs={validators.dataUpdatedAt}>
      <ValidatorStats list={list} />
      {list.data.some(({ weight_usd }) => Number(weight_usd) > 0) && (
        <Section title="Who has how much of the vote">
          <StakeBar validators={list.data} total_usd={list.total_usd} />
        </Section>
      )}
      <DataTable
        id="validators"
        rows={rows}
        columns={COLUMNS}
        rowKey={(row) => row.id}
        empty={
          <EmptyState title="Nobody validates yet">
            <p className="text-muted">Without validators no auction can be decided. Join with a stake:</p>
            <CopyableText label="become a validator" text="sparewatt validator join --stake 100 --url https://validator.example" />
          </EmptyState>
        }
      />
      <p className="small max-w-[100ch] text-muted">
        A certificate needs more than two thirds of the stake, so a vote that comes later is not in it. Agreement and missed votes are counted from signed votes in the last 100 matches
        that this gateway has seen. A proven fault costs stake and jails for good.
      </p>
    </LastKnown>
  );
}

function ValidatorStats({ list }: { list: MarketValidatorList }) {
  const voting = list.data.filter(({ weight_usd }) => Number(weight_usd) > 0);
  return (
    <Stats>
      <Stat name="Voting" hint="With weight at the newest stake version">
        {count(voting.length)}
      </Stat>
      <Stat name="Stake">{usd(list.total_usd)}</Stat>
      <Stat name="Quorum, at least" hint="More than two thirds of the stake">
        {usd(Math.floor((Number(list.total_usd) * 2e6) / 3 + 1) / 1e6)}
      </Stat>
      <Stat name="Stake version">{count(list.stake_version)}</Stat>
      <Stat name="Providers in their table" unit={list.snapshot ? `epoch ${count(list.snapshot.epoch)}` : ""} hint="The snapshot of providers that the validators agreed on last">
        {list.snapshot ? count(list.snapshot.count) : "none yet"}
      </Stat>
      <Stat name="Table posted">
        <Time at={list.snapshot?.posted_at} />
      </Stat>
    </Stats>
  );
}

type Row = MarketValidator & { share: number };

const COLUMNS: Column<Row>[] = [
  {
    name: "Validator",
    cell: (row) => (
      <>
        <span className="num small" title={row.id}>
          {shortId(row.id, 12)}
        </span>
        <span className="num small block text-muted" title={`Vote key ${row.vote_key}`}>
          votes by {shortId(row.vote_key)}
        </span>
      </>
    ),
  },
  { name: "State", cell: (row) => <ValidatorState of={row} />, sortBy: (row) => stateOf(row).word },
  { name: "Stake", cell: (row) => usd(row.stake_usd), sortBy: (row) => Number(row.stake_usd), isNumber: true },
  { name: "Share", cell: (row) => percent(row.share), sortBy: (row) => row.share, isNumber: true },
  {
    name: "In certificates",
    cell: (row) => (
      <span title="Of the certificates that the chain accepted while it had weight, those that carry its vote">
        {count(row.votes)} of {count(row.certificates)}
      </span>
    ),
    sortBy: (row) => row.votes,
    isNumber: true,
  },
  {
    name: "Agreement",
    cell: (row) => (
      <span title="Of its votes in the newest matches, those for what the chain accepted">
        {percent(agreement(row))}
        <RecentBar of={row} />
      </span>
    ),
    sortBy: (row) => agreement(row) ?? -1,
    isNumber: true,
  },
  {
    name: "Missed",
    cell: ({ recent }) => (
      <span title="Of the newest matches, those without any vote of it that this gateway knows">
        {count(recent.missed)} of {count(recent.agreed + recent.differed + recent.missed)}
      </span>
    ),
    sortBy: (row) => row.recent.missed,
    isNumber: true,
  },
  { name: "Last vote", cell: (row) => <Time at={row.last_vote_at} />, sortBy: (row) => row.last_vote_at ?? 0 },
  { name: "Takes bids at", cell: (row) => <span className="num small break-all">{row.url || "–"}</span> },
];

/** The newest matches as one bar: agreed, differed, missed. */
function RecentBar({ of: { recent } }: { of: MarketValidator }) {
  const total = recent.agreed + recent.differed + recent.missed;
  const parts = { agreed: "bg-online", differed: "bg-offline", missed: "bg-suspect" } as const;
  if (!total) return null;
  const label = (Object.keys(parts) as (keyof typeof parts)[]).map((part) => `${count(recent[part])} ${part}`).join(", ");
  return (
    <span role="img" aria-label={`Last ${count(total)} matches: ${label}`} title={label} className="mt-1 ml-auto flex h-1.5 w-24 max-w-full overflow-hidden rounded-md bg-line">
      {(Object.entries(parts) as [keyof typeof parts, string][]).map(([part, colour]) => (
        <span key={part} className={colour} style={{ width: `${(recent[part] / total) * 100}%` }} />
      ))}
    </span>
  );
}

/** Null if it has not voted. */
function agreement({ recent: { agreed, differed } }: MarketValidator): number | null {
  return agreed + differed ? agreed / (agreed + differed) : null;
}

function stateOf(row: MarketValidator): { shape: string; colour: string; word: string } {
  if (row.jailed) return { shape: "✕", colour: "text-offline", word: `jailed, ${usd(row.slashed_usd)} taken` };
  if (Number(row.weight_usd) > 0) return { shape: "●", colour: "text-online", word: "voting" };
  if (Number(row.pending_usd) > 0) return { shape: "◐", colour: "text-busy", word: `${usd(row.pending_usd)} pending` };
  if (Number(row.unbonding_usd) > 0) return { shape: "‖", colour: "text-paused", word: `leaving, ${usd(row.unbonding_usd)}` };
  return { shape: "‖", colour: "text-paused", word: "no stake" };
}

function ValidatorState({ of: row }: { of: MarketValidator }) {
  const { shape, colour, word } = stateOf(row);
  return (
    <span className="inline-flex items-center gap-1.5 whitespace-nowrap">
      <span aria-hidden className={`${colour} num`}>
        {shape}
      </span>
      {word}
    </span>
  );
}
