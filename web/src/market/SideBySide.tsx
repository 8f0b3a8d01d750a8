import { useMemo } from "react";
import type { LeaseMatch, MatchVoter } from "@/api/schema";
import { DataTable, type Column } from "@/components/DataTable";
import { EmptyState } from "@/components/Notice";
import { plural, usd } from "@/lib/format";
import { checkRanking } from "./bidScore";
import { useProviderName, ValidatorName } from "./names";
import { isRunning } from "./phases";
import { sideBySide, type ReplayCell } from "./sideBySide";

type Row = MatchVoter & { at: number };

/** The match as each validator signed it, one below the other; and the ranking, computed anew by this page. */
export function SideBySide({ match }: { match: LeaseMatch }) {
  const table = useMemo(() => sideBySide(match), [match]);
  const check = useMemo(() => checkRanking(match), [match]);
  const nameOf = useProviderName();
  const rows = table.voters.map((voter, at): Row => ({ ...voter, at }));
  const columns: Column<Row>[] = [
    { name: "Validator", cell: (row) => <Voter voter={row} /> },
    { name: "Weight", cell: (row) => usd(row.weight_usd), isNumber: true },
    ...table.rows.map(
      (step): Column<Row> => ({
        name: step.name,
        cell: (row) => <Cell of={step.cells[row.at]} nameOf={nameOf} />,
      }),
    ),
  ];
  return (
    <div className="space-y-3" data-testid="side-by-side">
      <p className="flex items-baseline gap-2" role="status">
        <Verdict agrees={table.agrees} isRunning={isRunning(match.phase.name)} />
      </p>
      <DataTable id="replay" rows={rows} columns={columns} rowKey={(row) => row.vote_key} toDownload={({ at: _, ...row }) => row} empty={<EmptyState title="No validator has weight in this attempt" />} />
      {table.hasOtherRound && (
        <p className="small text-muted">In another round a vote may be for another result: a proposal need not have the bids that too few validators had listed. The chain accepts one.</p>
      )}
      {check.bids > 0 &&
        (check.faults.length ? (
          <ul className="small list-disc pl-5 break-words text-offline">
            {check.faults.map((fault) => (
              <li key={fault}>{fault}</li>
            ))}
          </ul>
        ) : (
          <p className="small flex items-baseline gap-2 text-muted" data-testid="recomputed">
            <span aria-hidden className="num text-online">
              ●
            </span>
            This page computed {plural(check.bids, "score")} and their order anew from price, distance, uptime and reputation: the same.
          </p>
        ))}
    </div>
  );
}

function Verdict({ agrees, isRunning }: { agrees: boolean | null; isRunning: boolean }) {
  if (agrees === null) return <span className="text-muted">{isRunning ? "There is no certificate to compare with yet." : "There is no certificate to compare with."}</span>;
  return agrees ? (
    <>
      <span aria-hidden className="num text-online">
        ●
      </span>
      Every vote of this round that is known has the digest of the certificate.
    </>
  ) : (
    <>
      <span aria-hidden className="num text-offline">
        ✕
      </span>
      At least one vote of this round has another digest than the certificate.
    </>
  );
}

function Voter({ voter: { vote_key, operator, leads, heard, problem } }: { voter: MatchVoter }) {
  return (
    <>
      <ValidatorName voteKey={vote_key} operator={operator} />
      {leads.length > 0 && <span className="small block text-muted">leads round {leads.map((round) => round + 1).join(", ")}</span>}
      {!heard && <span className="small block text-suspect">not heard by this gateway</span>}
      {problem && <span className="small block break-words text-suspect">{problem}</span>}
    </>
  );
}

function Cell({ of: cell, nameOf }: { of: ReplayCell | undefined; nameOf: (provider: string) => string }) {
  if (!cell || cell.text === null) return <span className="text-muted">–</span>;
  return (
    <>
      <span className="num small whitespace-nowrap" title={cell.title}>
        {cell.isSame === false ? (
          <span className="text-offline">
            <span aria-hidden>≠ </span>
            <span className="sr-only">differs: </span>
          </span>
        ) : (
          <span aria-hidden className="text-online">
            ={" "}
          </span>
        )}
        {cell.text}
      </span>
      {cell.lacks.length > 0 && <span className="small block text-suspect">lacks {cell.lacks.map(nameOf).join(", ")}</span>}
      {cell.besides.length > 0 && <span className="small block text-suspect">also {cell.besides.map(nameOf).join(", ")}</span>}
    </>
  );
}
