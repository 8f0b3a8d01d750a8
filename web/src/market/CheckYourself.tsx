import type { LeaseMatch } from "@/api/schema";
import { CopyableText } from "@/components/CopyableText";

/** What one needs to compute the match again elsewhere: ids, hashes, and the command that does it. */
export function CheckYourself({ match: { order, attempt, certificate } }: { match: LeaseMatch }) {
  const older = attempt === order.attempt ? "" : ` --attempt ${attempt}`;
  const lines: [label: string, text: string | null | undefined, testId?: string][] = [
    ["Compute it again", certificate && `sparewatt validator replay ${order.id}${older}`],
    ["Order", order.id],
    ["Digest that was signed", certificate?.task_digest, "digest"],
    ["Merkle root of the bids", certificate?.bid_root],
    ["Transaction", certificate?.tx],
  ];
  return (
    <dl className="space-y-2">
      {lines.map(
        ([label, text, testId]) =>
          text && (
            <div key={label} className="grid items-center gap-x-3 gap-y-1 sm:grid-cols-[11rem_1fr]">
              <dt className="small text-muted">{label}</dt>
              <dd className="min-w-0">
                <CopyableText label={label} text={text} {...(testId && { testId })} />
              </dd>
            </div>
          ),
      )}
    </dl>
  );
}
