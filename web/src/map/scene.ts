// The canvas of the map, in layers: land (drawn once), nodes (when they change, at most four times a second), animations
// (every frame). A frame copies two layers and draws a few arcs, so its cost does not grow with the number of nodes.
import type { NodeStateName } from "@/api/schema";
import type { FeedEvent } from "@/feed/feed";
import type { LiveNode } from "@/feed/liveNode";
import { prefersReducedMotion } from "@/lib/motion";
import { cssVariable } from "@/lib/theme";
import { drawLand } from "./land";
import { project, type Point } from "./projection";
import { sizeOf, Sprites, type Colours } from "./sprites";

const GROW_MS = 400;
const FADE_MS = 700;
const BLINK_MS = 900;
const NODES_EVERY_MS = 250;
const ANIMATIONS_MAX = 120;
const CURVE_STEPS = 24;
const UNPLACED_COLUMNS = 24;
/** In the Atlantic: the feed does not say where a gateway is. */
const GATEWAY: [longitude: number, latitude: number] = [-32, 36];
/** In drawing order, so that the nodes at work are on top. */
const STATES: NodeStateName[] = ["offline", "draining", "paused", "suspect", "online", "busy"];

/** An arc from the gateway to a node that got a job, or a circle around a node that went offline. */
interface Animation {
  kind: "arc" | "blink";
  to: Point;
  beganMs: number;
}

export class Scene {
  private context: CanvasRenderingContext2D | null;
  private land: HTMLCanvasElement | null = null;
  private nodeLayer = document.createElement("canvas");
  private sprites: Sprites | null = null;
  private positions = new Map<number, Point>();
  private animations: Animation[] = [];
  private areNodesStale = true;
  private nodesDrawnMs = 0;
  private width = 0;
  private height = 0;
  private ratio = 1;
  // Read once per theme: to ask the browser for a style in every frame is slow.
  private accentColour = "";
  private offlineColour = "";
  private textColour = "";
  private leased: ReadonlySet<string> = new Set();
  /** How many frames were drawn, for tests of the frame rate. */
  frames = 0;

  constructor(
    private canvas: HTMLCanvasElement,
    private nodes: Map<number, LiveNode>,
  ) {
    this.context = canvas.getContext("2d");
  }

  resize(width: number, height: number): void {
    this.width = width;
    this.height = height;
    this.ratio = Math.min(2, window.devicePixelRatio || 1);
    for (const canvas of [this.canvas, this.nodeLayer]) {
      canvas.width = Math.round(width * this.ratio);
      canvas.height = Math.round(height * this.ratio);
    }
    this.positions.clear();
    this.recolour();
  }

  recolour(): void {
    const colours = Object.fromEntries(STATES.map((state) => [state, cssVariable(state === "draining" ? "paused" : state)]));
    this.sprites = new Sprites(colours as Colours, this.ratio, cssVariable("ink"));
    if (!this.width || !this.height) return;
    this.land = drawLand(this.width, this.height, this.ratio, cssVariable("land"));
    this.accentColour = cssVariable("volt");
    this.offlineColour = cssVariable("offline");
    this.textColour = cssVariable("text");
    this.refresh();
  }

  refresh(): void {
    this.areNodesStale = true;
  }

  /** The handles of nodes that run leases. */
  setLeased(handles: ReadonlySet<string>): void {
    this.leased = handles;
    this.refresh();
  }

  forgetPositions(): void {
    this.positions.clear();
    this.refresh();
  }

  onFeedEvent(event: FeedEvent): void {
    this.refresh();
    if (prefersReducedMotion() || document.hidden) return;
    if (event.kind === "job_sent") this.animate("arc", this.nodes.get(event.node));
    else if (event.node.state === "offline") this.animate("blink", event.node);
  }

  private animate(kind: Animation["kind"], node: LiveNode | undefined): void {
    if (!node || this.animations.length >= ANIMATIONS_MAX) return;
    this.animations.push({ kind, to: this.positionOf(node), beganMs: performance.now() });
  }

  private positionOf(node: LiveNode): Point {
    let position = this.positions.get(node.number);
    if (!position) this.positions.set(node.number, (position = this.place(node)));
    return position;
  }

  /** Nodes without a region form a block at the bottom left. */
  private place({ number, longitude, latitude }: LiveNode): Point {
    if (longitude !== null && latitude !== null) return project(longitude, latitude, this.width, this.height);
    const row = Math.floor(number / UNPLACED_COLUMNS) % 8;
    return { x: 16 + (number % UNPLACED_COLUMNS) * 10, y: this.height - 16 - row * 10 };
  }

  nearest(x: number, y: number, radiusPx: number): LiveNode | null {
    let [nearest, best] = [null as LiveNode | null, radiusPx * radiusPx];
    for (const node of this.nodes.values()) {
      const position = this.positionOf(node);
      const squared = (position.x - x) ** 2 + (position.y - y) ** 2;
      if (squared < best) [nearest, best] = [node, squared];
    }
    return nearest;
  }

  /** Returns a function that stops it. */
  start(): () => void {
    const onFrame = (nowMs: number) => {
      request = requestAnimationFrame(onFrame);
      this.frames += 1;
      this.draw(nowMs);
    };
    let request = requestAnimationFrame(onFrame);
    return () => cancelAnimationFrame(request);
  }

  private draw(nowMs: number): void {
    if (!this.width || !this.height) return;
    const areNodesDue = this.areNodesStale && nowMs - this.nodesDrawnMs >= NODES_EVERY_MS;
    if (!areNodesDue && !this.animations.length) return;
    if (areNodesDue) this.drawNodes(nowMs);
    const { context, canvas } = this;
    if (!context || !this.land) return;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.drawImage(this.land, 0, 0);
    context.drawImage(this.nodeLayer, 0, 0);
    context.scale(this.ratio, this.ratio);
    const gateway = project(...GATEWAY, this.width, this.height);
    this.drawGateway(context, gateway);
    for (const { kind, to, beganMs } of this.animations)
      if (kind === "arc") this.drawArc(context, gateway, to, nowMs - beganMs);
      else this.drawBlink(context, to, nowMs - beganMs);
    context.globalAlpha = 1;
    this.animations = this.animations.filter(({ kind, beganMs }) => nowMs - beganMs < (kind === "arc" ? GROW_MS + FADE_MS : BLINK_MS));
  }

  private drawNodes(nowMs: number): void {
    this.nodesDrawnMs = nowMs;
    this.areNodesStale = false;
    const context = this.nodeLayer.getContext("2d");
    if (!context || !this.sprites) return;
    context.clearRect(0, 0, this.nodeLayer.width, this.nodeLayer.height);
    const byState = new Map<NodeStateName, LiveNode[]>(STATES.map((state) => [state, []]));
    for (const node of this.nodes.values()) byState.get(node.state)?.push(node);
    for (const node of [...byState.values()].flat()) {
      const sprite = this.sprites.get(node.state, sizeOf(node.vramGb, this.nodes.size));
      const { x, y } = this.positionOf(node);
      context.drawImage(sprite, Math.round(x * this.ratio - sprite.width / 2), Math.round(y * this.ratio - sprite.height / 2));
      if (this.leased.has(node.handle)) this.drawFrame(context, x, y, sprite.width);
    }
  }

  /** A square around a node that runs a lease, whatever its state. */
  private drawFrame(context: CanvasRenderingContext2D, x: number, y: number, width: number): void {
    const side = width + 4 * this.ratio;
    context.strokeStyle = this.textColour;
    context.lineWidth = 1.5 * this.ratio;
    context.strokeRect(Math.round(x * this.ratio - side / 2), Math.round(y * this.ratio - side / 2), side, side);
  }

  private drawGateway(context: CanvasRenderingContext2D, { x, y }: Point): void {
    context.fillStyle = this.accentColour;
    context.beginPath();
    context.moveTo(x, y - 6);
    context.lineTo(x + 6, y);
    context.lineTo(x, y + 6);
    context.lineTo(x - 6, y);
    context.fill();
  }

  /** A quadratic Bézier curve that grows from the gateway to the node and then fades. */
  private drawArc(context: CanvasRenderingContext2D, from: Point, to: Point, ageMs: number): void {
    const grown = Math.min(1, ageMs / GROW_MS);
    const control = { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 - Math.abs(to.x - from.x) * 0.25 - 12 };
    context.globalAlpha = ageMs < GROW_MS ? 0.9 : Math.max(0, 0.9 * (1 - (ageMs - GROW_MS) / FADE_MS));
    context.strokeStyle = this.accentColour;
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(from.x, from.y);
    for (let step = 1; step <= CURVE_STEPS; step++) {
      const { x, y } = bezier(from, control, to, (step / CURVE_STEPS) * grown);
      context.lineTo(x, y);
    }
    context.stroke();
  }

  private drawBlink(context: CanvasRenderingContext2D, { x, y }: Point, ageMs: number): void {
    context.globalAlpha = Math.max(0, 1 - ageMs / BLINK_MS);
    context.strokeStyle = this.offlineColour;
    context.lineWidth = 2;
    context.beginPath();
    context.arc(x, y, 4 + (ageMs / BLINK_MS) * 14, 0, Math.PI * 2);
    context.stroke();
  }
}

function bezier(from: Point, control: Point, to: Point, t: number): Point {
  const [a, b, c] = [(1 - t) ** 2, 2 * (1 - t) * t, t * t];
  return { x: a * from.x + b * control.x + c * to.x, y: a * from.y + b * control.y + c * to.y };
}
