// The map as layers: land (once), nodes (when they change, four times a second at most), and what moves (every frame).
// So a frame costs two copies and a few arcs, however many nodes there are.
import type { StateName } from "@/api/types";
import type { FeedEvent } from "@/feed/feed";
import type { FeedNode } from "@/feed/model";
import { isStill } from "@/lib/motion";
import { drawLand } from "./land";
import { project, type Point } from "./projection";
import { sizeOf, Sprites, type Colours } from "./sprites";

const GROW_MS = 400;
const FADE_MS = 700;
const BLINK_MS = 900;
const NODES_EVERY_MS = 250;
const ARCS_MAX = 120;
const GATEWAY: [number, number] = [-32, 36];
const STATES: StateName[] = ["offline", "draining", "paused", "suspect", "online", "busy"];

interface Moving {
  from: Point;
  to: Point;
  beganMs: number;
  kind: "arc" | "blink";
}

function token(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

export class Scene {
  private paint: CanvasRenderingContext2D | null;
  private land: HTMLCanvasElement | null = null;
  private layer = document.createElement("canvas");
  private sprites: Sprites | null = null;
  private places = new Map<number, Point>();
  private moving: Moving[] = [];
  private frame = 0;
  private isStale = true;
  private drawnMs = 0;
  private width = 0;
  private height = 0;
  private ratio = 1;
  private volt = "";
  private died = "";
  frames = 0;

  constructor(
    private canvas: HTMLCanvasElement,
    private nodes: Map<number, FeedNode>,
  ) {
    this.paint = canvas.getContext("2d");
  }

  resize(width: number, height: number): void {
    this.width = width;
    this.height = height;
    this.ratio = Math.min(2, window.devicePixelRatio || 1);
    for (const canvas of [this.canvas, this.layer]) {
      canvas.width = Math.round(width * this.ratio);
      canvas.height = Math.round(height * this.ratio);
    }
    this.places.clear();
    this.recolour();
  }

  recolour(): void {
    const colours = Object.fromEntries(STATES.map((name) => [name, token(name === "draining" ? "paused" : name)]));
    this.sprites = new Sprites(colours as Colours, this.ratio, token("ink"));
    if (!this.width || !this.height) return;
    this.land = drawLand(this.width, this.height, this.ratio, token("land"));
    this.volt = token("volt");
    this.died = token("offline");
    this.refresh();
  }

  refresh(): void {
    this.isStale = true;
  }

  forgetPlaces(): void {
    this.places.clear();
    this.refresh();
  }

  on(event: FeedEvent): void {
    this.refresh();
    if (isStill() || document.hidden) return;
    if (event.kind === "job") this.add("arc", event.node);
    else if (event.node.state === "offline") this.add("blink", event.node.number);
  }

  private add(kind: Moving["kind"], number: number): void {
    const node = this.nodes.get(number);
    if (!node || this.moving.length >= ARCS_MAX) return;
    this.moving.push({ kind, from: this.gateway(), to: this.placeOf(node), beganMs: performance.now() });
  }

  gateway(): Point {
    return project(GATEWAY[0], GATEWAY[1], this.width, this.height);
  }

  placeOf(node: FeedNode): Point {
    let place = this.places.get(node.number);
    if (!place) this.places.set(node.number, (place = this.place(node)));
    return place;
  }

  private place(node: FeedNode): Point {
    if (node.lon !== null && node.lat !== null) return project(node.lon, node.lat, this.width, this.height);
    const across = 24; // those that say no region stand side by side at the bottom left
    return { x: 16 + (node.number % across) * 10, y: this.height - 16 - (Math.floor(node.number / across) % 8) * 10 };
  }

  nearest(x: number, y: number, within: number): FeedNode | null {
    let [found, best] = [null as FeedNode | null, within * within];
    for (const node of this.nodes.values()) {
      const place = this.placeOf(node);
      const far = (place.x - x) ** 2 + (place.y - y) ** 2;
      if (far < best) [found, best] = [node, far];
    }
    return found;
  }

  start(): () => void {
    const tick = (nowMs: number) => {
      this.frame = requestAnimationFrame(tick);
      this.frames += 1;
      this.draw(nowMs);
    };
    this.frame = requestAnimationFrame(tick);
    return () => cancelAnimationFrame(this.frame);
  }

  private draw(nowMs: number): void {
    if (!this.width || !this.height) return;
    const isDue = this.isStale && nowMs - this.drawnMs >= NODES_EVERY_MS;
    if (!isDue && !this.moving.length) return;
    if (isDue) this.drawNodes(nowMs);
    const { paint, canvas } = this;
    if (!paint || !this.land) return;
    paint.setTransform(1, 0, 0, 1, 0, 0);
    paint.clearRect(0, 0, canvas.width, canvas.height);
    paint.drawImage(this.land, 0, 0);
    paint.drawImage(this.layer, 0, 0);
    paint.scale(this.ratio, this.ratio);
    this.drawGateway(paint);
    for (const one of this.moving) this.drawMoving(paint, one, nowMs - one.beganMs);
    this.moving = this.moving.filter((one) => nowMs - one.beganMs < lifeOf(one));
  }

  private drawNodes(nowMs: number): void {
    this.drawnMs = nowMs;
    this.isStale = false;
    const paint = this.layer.getContext("2d");
    if (!paint || !this.sprites) return;
    paint.clearRect(0, 0, this.layer.width, this.layer.height);
    const byState = new Map<StateName, FeedNode[]>(STATES.map((state) => [state, []]));
    for (const node of this.nodes.values()) byState.get(node.state)?.push(node);
    for (const [state, nodes] of byState) for (const node of nodes) this.stamp(paint, this.sprites, node, state);
  }

  private stamp(paint: CanvasRenderingContext2D, sprites: Sprites, node: FeedNode, state: StateName): void {
    const sprite = sprites.get(state, sizeOf(node.vramGb, this.nodes.size));
    const { x, y } = this.placeOf(node);
    paint.drawImage(sprite, Math.round(x * this.ratio - sprite.width / 2), Math.round(y * this.ratio - sprite.height / 2));
  }

  private drawGateway(paint: CanvasRenderingContext2D): void {
    const { x, y } = this.gateway();
    paint.fillStyle = this.volt;
    paint.beginPath();
    paint.moveTo(x, y - 6);
    paint.lineTo(x + 6, y);
    paint.lineTo(x, y + 6);
    paint.lineTo(x - 6, y);
    paint.fill();
  }

  private drawMoving(paint: CanvasRenderingContext2D, one: Moving, ageMs: number): void {
    if (one.kind === "blink") return this.drawBlink(paint, one.to, ageMs);
    const grown = Math.min(1, ageMs / GROW_MS);
    paint.globalAlpha = ageMs < GROW_MS ? 0.9 : Math.max(0, 0.9 * (1 - (ageMs - GROW_MS) / FADE_MS));
    paint.strokeStyle = this.volt;
    paint.lineWidth = 1.5;
    paint.beginPath();
    const bow = bowOf(one.from, one.to);
    for (let step = 0; step <= 24; step++) {
      const { x, y } = onCurve(one.from, bow, one.to, (step / 24) * grown);
      if (step) paint.lineTo(x, y);
      else paint.moveTo(x, y);
    }
    paint.stroke();
    paint.globalAlpha = 1;
  }

  private drawBlink(paint: CanvasRenderingContext2D, at: Point, ageMs: number): void {
    paint.globalAlpha = Math.max(0, 1 - ageMs / BLINK_MS);
    paint.strokeStyle = this.died;
    paint.lineWidth = 2;
    paint.beginPath();
    paint.arc(at.x, at.y, 4 + (ageMs / BLINK_MS) * 14, 0, Math.PI * 2);
    paint.stroke();
    paint.globalAlpha = 1;
  }
}

function lifeOf(one: Moving): number {
  return one.kind === "blink" ? BLINK_MS : GROW_MS + FADE_MS;
}

function bowOf(from: Point, to: Point): Point {
  return { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 - Math.abs(to.x - from.x) * 0.25 - 12 };
}

function onCurve(from: Point, bow: Point, to: Point, t: number): Point {
  const [a, b, c] = [(1 - t) ** 2, 2 * (1 - t) * t, t * t];
  return { x: a * from.x + b * bow.x + c * to.x, y: a * from.y + b * bow.y + c * to.y };
}
