// The symbol of a node by state and size, drawn once and copied for each of up to ten thousand nodes. A state has a
// shape as well as a colour, for readers who cannot tell the colours apart.
import type { NodeStateName } from "@/api/schema";

const RADII_PX = [2, 2.6, 3.4, 4.4, 5.6, 7];

export type Colours = Record<NodeStateName, string>;

/** An index into the radii: larger for more memory, smaller where many nodes share the map. */
export function sizeOf(vramGb: number, nodeCount: number): number {
  const wanted = Math.floor(Math.log2(Math.max(1, vramGb) / 8) + 1);
  const step = Math.min(RADII_PX.length - 1, Math.max(0, wanted));
  return nodeCount > 3_000 ? Math.max(0, step - 2) : nodeCount > 300 ? Math.max(0, step - 1) : Math.max(2, step);
}

export class Sprites {
  private canvases: Partial<Record<NodeStateName, HTMLCanvasElement[]>> = {};

  constructor(
    private colours: Colours,
    private ratio: number,
    private ink: string,
  ) {}

  get(state: NodeStateName, size: number): HTMLCanvasElement {
    const sizes = (this.canvases[state] ??= []);
    return (sizes[size] ??= this.draw(state, RADII_PX[size] as number));
  }

  private draw(state: NodeStateName, radius: number): HTMLCanvasElement {
    const side = Math.ceil((radius * 2 + 3) * this.ratio);
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = side;
    const context = canvas.getContext("2d");
    if (context) {
      context.translate(side / 2, side / 2);
      context.scale(this.ratio, this.ratio);
      drawShape(context, state, radius, this.colours[state], this.ink);
    }
    return canvas;
  }
}

function drawShape(context: CanvasRenderingContext2D, state: NodeStateName, r: number, colour: string, ink: string): void {
  context.fillStyle = context.strokeStyle = colour;
  context.lineWidth = Math.max(1, r / 2.5);
  switch (state) {
    case "online":
      return fillArc(context, r, 0, Math.PI * 2);
    case "busy":
      return drawRing(context, r, Math.PI / 2, (Math.PI * 3) / 2, ink);
    case "suspect":
      return drawRing(context, r, -Math.PI / 2, 0, ink);
    case "offline":
      return drawLines(context, [-r, -r, r, r], [-r, r, r, -r]);
    case "paused":
      return drawLines(context, [-r / 2, -r, -r / 2, r], [r / 2, -r, r / 2, r]);
    case "draining":
      return drawLines(context, [-r, -r / 2, 0, r / 2], [0, r / 2, r, -r / 2]);
  }
}

function fillArc(context: CanvasRenderingContext2D, r: number, from: number, to: number): void {
  context.beginPath();
  context.moveTo(0, 0);
  context.arc(0, 0, r, from, to);
  context.fill();
}

function drawRing(context: CanvasRenderingContext2D, r: number, from: number, to: number, ink: string): void {
  const colour = context.fillStyle;
  context.fillStyle = ink;
  fillArc(context, r, 0, Math.PI * 2);
  context.fillStyle = colour;
  fillArc(context, r, from, to);
  context.beginPath();
  context.arc(0, 0, r - context.lineWidth / 2, 0, Math.PI * 2);
  context.stroke();
}

function drawLines(context: CanvasRenderingContext2D, ...lines: [number, number, number, number][]): void {
  context.beginPath();
  for (const [x1, y1, x2, y2] of lines) {
    context.moveTo(x1, y1);
    context.lineTo(x2, y2);
  }
  context.stroke();
}
