import { useEffect, useRef, useState } from "react";
import { useLocation } from "wouter";
import { feed } from "@/feed/feed";
import type { FeedNode } from "@/feed/model";
import { useFeed } from "@/feed/useFeed";
import { plural } from "@/lib/format";
import { useTheme } from "@/lib/theme";
import { StateMark } from "@/parts/StateMark";
import { ASPECT } from "./projection";
import { Scene } from "./scene";

const REACH_PX = 14;

interface Hover {
  node: FeedNode;
  x: number;
  y: number;
}

declare global {
  interface Window {
    sparewattScene?: Scene;
  }
}

/** `names`: by handle, what somebody who is logged in may know. */
export function WorldMap({ names }: { names: Map<string, { id: string; name: string }> }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const scene = useRef<Scene | null>(null);
  const [hover, setHover] = useState<Hover | null>(null);
  const [, go] = useLocation();
  const theme = useTheme();
  const { nodesVersion, nodeCount, totals } = useFeed();

  useEffect(() => {
    const element = canvas.current;
    if (!element) return;
    const made = new Scene(element, feed.nodes);
    scene.current = window.sparewattScene = made;
    const fit = () => made.resize(element.clientWidth, element.clientHeight);
    const seen = new ResizeObserver(fit);
    seen.observe(element);
    const [stop, deaf] = [made.start(), feed.watch((event) => made.on(event))];
    return () => {
      seen.disconnect();
      stop();
      deaf();
    };
  }, []);
  useEffect(() => scene.current?.recolour(), [theme]);
  useEffect(() => scene.current?.forgetPlaces(), [nodeCount]);
  useEffect(() => scene.current?.refresh(), [nodesVersion]);

  const look = (event: React.PointerEvent) => {
    const box = event.currentTarget.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const node = scene.current?.nearest(x, y, REACH_PX);
    setHover(node ? { node, x, y } : null);
  };
  const known = hover && names.get(hover.node.handle);
  const online = (totals?.nodes.online ?? 0) + (totals?.nodes.busy ?? 0);

  return (
    <div className="relative w-full" style={{ aspectRatio: `${ASPECT}`, maxHeight: "62vh" }}>
      <canvas
        ref={canvas}
        role="img"
        aria-label={`World map: ${plural(online, "node")} online of ${nodeCount}. The table of regions below says the same.`}
        className={`block h-full w-full ${known ? "cursor-pointer" : ""}`}
        onPointerMove={look}
        onPointerLeave={() => setHover(null)}
        onClick={() => known && go(`/nodes/${known.id}`)}
      />
      {hover && <Hint hover={hover} name={known?.name} />}
    </div>
  );
}

function Hint({ hover, name }: { hover: Hover; name: string | undefined }) {
  const { node } = hover;
  const isRight = hover.x > 260;
  return (
    <div
      className="card small pointer-events-none absolute z-10 px-3 py-2"
      style={{ top: hover.y + 12, left: isRight ? hover.x - 12 : hover.x + 12, translate: isRight ? "-100%" : "0" }}
    >
      <div className="flex items-center gap-2">
        <StateMark state={node.state} />
        <span>{name ?? "a node"}</span>
      </div>
      <div className="num text-muted">
        {node.region} · {node.gpuClass} · {node.vramGb} GB
      </div>
    </div>
  );
}
