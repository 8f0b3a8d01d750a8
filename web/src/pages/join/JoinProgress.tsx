import { Link } from "wouter";
import type { Node } from "@/api/schema";
import { NodeStateBadge } from "@/components/NodeStateBadge";
import { digits } from "@/lib/format";

interface Step {
  name: string;
  isDone: boolean;
  detail: string;
}

/** How far a node is on its way to its first job. */
export function JoinProgress({ node, isWaiting = false }: { node: Node | null; isWaiting?: boolean }) {
  const steps = stepsOf(node);
  const current = steps.findIndex((step) => !step.isDone);
  return (
    <div className="card p-4" data-testid={node ? "joining" : "waiting"} data-node={node?.id}>
      {node && (
        <p className="mb-3 flex flex-wrap items-center justify-between gap-2">
          <Link href={`/nodes/${node.id}`} className="font-semibold hover:underline">
            {node.name}
          </Link>
          <NodeStateBadge state={node.state} />
        </p>
      )}
      <ol className="grid gap-3 sm:grid-cols-4">
        {steps.map((step, at) => (
          <li
            key={step.name}
            className={`border-t-2 pt-2 ${step.isDone ? "border-online" : at === current && (node || isWaiting) ? "border-volt" : "border-line"}`}
          >
            <p className={step.isDone ? "" : "text-muted"}>
              <span aria-hidden>{step.isDone ? "✓ " : ""}</span>
              {step.name}
            </p>
            <p className="num small text-muted">{step.detail}</p>
          </li>
        ))}
      </ol>
    </div>
  );
}

function stepsOf(node: Node | null): Step[] {
  const models = node?.models ?? [];
  const measured = models.filter((model) => model.measured);
  const best = Math.max(0, ...measured.map((model) => model.measured?.decode_tps ?? 0));
  const jobs = (node?.jobs_done ?? 0) + (node?.in_flight ?? 0);
  return [
    { name: "Connected", isDone: node !== null && node.state !== "offline", detail: node ? `${node.gpu}, ${node.region}` : "waiting for its connection" },
    { name: "Has a model", isDone: models.length > 0, detail: models.map((model) => model.id).join(", ") || "looking for a model server" },
    { name: "Measured", isDone: measured.length > 0, detail: measured.length ? `${digits(best)} tok/s` : "a few seconds" },
    { name: "First job", isDone: jobs > 0, detail: jobs > 0 ? `${jobs} so far` : "as soon as it is the best choice" },
  ];
}
