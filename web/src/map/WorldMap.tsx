import { useEffect, useRef, useState, type PointerEvent } from "react";
import { useLocation } from "wouter";
import { NodeStateBadge } from "@/components/NodeStateBadge";
import { feed } from "@/feed/feed";
import type { LiveNode } from "@/feed/liveNode";
import { useFeed } from "@/feed/useFeed";
import { plural } from "@/lib/format";
import { useTheme } from "@/lib/theme";
import { ASPECT } from "./projection";
import { Scene } from "./scene";

const POINTER_RADIUS_PX = 14;

interface Hover {
  node: LiveNode;
  x: number;
  y: number;
}

declare global {
  interface Window {
    /** For tests of the frame rate. */
    sparewattScene?: Scene;
  }
}

interface Props {
  /** The nodes by handle. It is empty for visitors who are not logged in: the feed names no node. */
  names: Map<string, { id: string; name: string }>;
  /** How many leases each node runs, by its id; likewise empty. */
  leases: Map<string, number>;
}

export function WorldMap({ names, leases }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const scene = useRef<Scene | null>(null);
  const [hover, setHover] = useState<Hover | null>(null);
  const [, navigate] = useLocation();
  const theme = useTheme();
  const { nodesVersion, nodeCount, totals } = useFeed();

  useEffect(() => {
    const element = canvas.current;
    if (!element) return;
    const created = new Scene(element, feed.nodes);
    scene.current = window.sparewattScene = created;
    const observer = new ResizeObserver(() => created.resize(element.clientWidth, element.clientHeight));
    observer.observe(element);
    const [stop, unlisten] = [created.start(), feed.listen((event) => created.onFeedEvent(event))];
    return () => {
      observer.disconnect();
      stop();
      unlisten();
    };
  }, []);
  useEffect(() => scene.current?.recolour(), [theme]);
  useEffect(() => scene.current?.forgetPositions(), [nodeCount]);
  useEffect(() => scene.current?.refresh(), [nodesVersion]);

  useEffect(() => scene.current?.setLeased(new Set([...names].filter(([, { id }]) => leases.has(id)).map(([handle]) => handle))), [names, leases]);

  const onPointerMove = (event: PointerEvent) => {
    const box = event.currentTarget.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const node = scene.current?.nearest(x, y, POINTER_RADIUS_PX);
    setHover(node ? { node, x, y } : null);
  };
  const named = hover && names.get(hover.node.handle);
  const online = (totals?.nodes.online ?? 0) + (totals?.nodes.busy ?? 0);

  return (
    <div className="relative w-full" style={{ aspectRatio: `${ASPECT}`, maxHeight: "62vh" }}>
      <canvas
        ref={canvas}
        role="img"
        aria-label={`World map: ${plural(online, "node")} online of ${nodeCount}${leases.size ? `, ${leases.size} of them with leases` : ""}. The table of regions below has the same counts.`}
        className={`block h-full w-full ${named ? "cursor-pointer" : ""}`}
        onPointerMove={onPointerMove}
        onPointerLeave={() => setHover(null)}
        onClick={() => named && navigate(`/nodes/${named.id}`)}
      />
      {hover && <Tooltip hover={hover} name={named?.name} leases={named ? (leases.get(named.id) ?? 0) : 0} />}
    </div>
  );
}

function Tooltip({ hover: { node, x, y }, name, leases }: { hover: Hover; name: string | undefined; leases: number }) {
  const isLeft = x > 260;
  return (
    <div
      className="card small pointer-events-none absolute z-10 px-3 py-2"
      style={{ top: y + 12, left: isLeft ? x - 12 : x + 12, translate: isLeft ? "-100%" : "0" }}
    >
      <div className="flex items-center gap-2">
        <NodeStateBadge state={node.state} />
        <span>{name ?? "a node"}</span>
      </div>
      <div className="num text-muted">
        {node.region} · {node.gpuClass} · {node.vramGb} GB{leases > 0 && ` · ${plural(leases, "lease")}`}
      </div>
    </div>
  );
}
