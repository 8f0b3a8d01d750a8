// Draws the outline of all land onto a canvas of its own: once per size and theme.
import rings from "virtual:land";
import { project } from "./projection";

export function drawLand(width: number, height: number, ratio: number, colour: string): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  if (!context) return canvas;
  context.scale(ratio, ratio);
  context.fillStyle = colour;
  context.beginPath();
  for (const steps of rings) addRing(context, steps, width, height);
  context.fill("evenodd");
  return canvas;
}

function addRing(context: CanvasRenderingContext2D, steps: number[], width: number, height: number): void {
  let [lon, lat] = [0, 0];
  for (let at = 0; at + 1 < steps.length; at += 2) {
    lon += steps[at] as number;
    lat += steps[at + 1] as number;
    const { x, y } = project(lon / 10, lat / 10, width, height);
    if (at === 0) context.moveTo(x, y);
    else context.lineTo(x, y);
  }
  context.closePath();
}
