import type { LeaseDetails } from "@/api/schema";
import { Time } from "@/components/Time";
import { duration, usd } from "@/lib/format";
import { Detail } from "@/match/Details";

/** What was ordered. */
export function LeaseFacts({ lease }: { lease: LeaseDetails }) {
  const { content, order } = lease;
  const [command, ports] = [content.command, content.ports];
  return (
    <dl className="card grid grid-cols-2 gap-3 p-4">
      <Detail name="GPUs">{lease.gpus}</Detail>
      <Detail name="Processors">{lease.cpus}</Detail>
      <Detail name="Memory">{lease.memory_gb} GB</Detail>
      <Detail name="Disk">{lease.disk_gb} GB</Detail>
      <Detail name="For">{duration(lease.duration_s)}</Detail>
      <Detail name="Highest price">{usd(lease.max_hourly_usd)}/h</Detail>
      <Detail name="Ordered">
        <Time at={lease.created_at} />
      </Detail>
      <Detail name="Attempt">{order ? order.attempt + 1 : "–"}</Detail>
      {Array.isArray(ports) && ports.length > 0 && <Detail name="Ports">{ports.join(", ")}</Detail>}
      {Array.isArray(command) && command.length > 0 && (
        <div className="col-span-2 min-w-0">
          <dt className="small text-muted">Command</dt>
          <dd className="num small break-all">{command.join(" ")}</dd>
        </div>
      )}
    </dl>
  );
}
