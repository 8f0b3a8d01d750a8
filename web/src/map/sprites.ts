// A node's picture, by state and size: drawn once, stamped ten thousand times. State is shape and colour.
import type { StateName } from "@/api/types";

const SIZES = [2, 2.6, 3.4, 4.4, 5.6, 7];

export type Colours = Record<StateName, string>;

export function sizeOf(vramGb: number, crowd: number): number {
  const wanted = Math.floor(Math.log2(Math.max(1, vramGb) / 8) + 1);
  const step = Math.min(SIZES.length - 1, Math.max(0, wanted));
  return crowd > 3_000 ? Math.max(0, step - 2) : crowd > 300 ? Math.max(0, step - 1) : Math.max(2, step);
}

export class Sprites {
  private made: Partial<Record<StateName, HTMLCanvasElement[]>> = {};

  constructor(
    private colours: Colours,
    private ratio: number,
    private ink: string,
  ) {}

  get(state: StateName, size: number): HTMLCanvasElement {
    const sizes = (this.made[state] ??= []);
    return (sizes[size] ??= this.draw(state, SIZES[size] as number));
  }

  private draw(state: StateName, radius: number): HTMLCanvasElement {
    const side = Math.ceil((radius * 2 + 3) * this.ratio);
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = side;
    const paint = canvas.getContext("2d");
    if (paint) {
      paint.translate(side / 2, side / 2);
      paint.scale(this.ratio, this.ratio);
      shape(paint, state, radius, this.colours[state], this.ink);
    }
    return canvas;
  }
}

function shape(paint: CanvasRenderingContext2D, state: StateName, r: number, colour: string, ink: string): void {
  paint.fillStyle = paint.strokeStyle = colour;
  paint.lineWidth = Math.max(1, r / 2.5);
  switch (state) {
    case "online":
      return fillArc(paint, r, 0, Math.PI * 2);
    case "busy":
      return ringWith(paint, r, Math.PI / 2, (Math.PI * 3) / 2, ink);
    case "suspect":
      return ringWith(paint, r, -Math.PI / 2, 0, ink);
    case "offline":
      return lines(paint, [-r, -r, r, r], [-r, r, r, -r]);
    case "paused":
      return lines(paint, [-r / 2, -r, -r / 2, r], [r / 2, -r, r / 2, r]);
    case "draining":
      return lines(paint, [-r, -r / 2, 0, r / 2], [0, r / 2, r, -r / 2]);
  }
}

function fillArc(paint: CanvasRenderingContext2D, r: number, from: number, to: number): void {
  paint.beginPath();
  paint.moveTo(0, 0);
  paint.arc(0, 0, r, from, to);
  paint.fill();
}

function ringWith(paint: CanvasRenderingContext2D, r: number, from: number, to: number, ink: string): void {
  const colour = paint.fillStyle;
  paint.fillStyle = ink;
  fillArc(paint, r, 0, Math.PI * 2);
  paint.fillStyle = colour;
  fillArc(paint, r, from, to);
  paint.beginPath();
  paint.arc(0, 0, r - paint.lineWidth / 2, 0, Math.PI * 2);
  paint.stroke();
}

function lines(paint: CanvasRenderingContext2D, ...all: [number, number, number, number][]): void {
  paint.beginPath();
  for (const [x1, y1, x2, y2] of all) {
    paint.moveTo(x1, y1);
    paint.lineTo(x2, y2);
  }
  paint.stroke();
}
