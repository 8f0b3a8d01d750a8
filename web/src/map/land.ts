// Draws the land once onto a canvas of its own.
import rings from "virtual:land";
import { project } from "./projection";

export function drawLand(width: number, height: number, ratio: number, colour: string): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const paint = canvas.getContext("2d");
  if (!paint) return canvas;
  paint.scale(ratio, ratio);
  paint.fillStyle = colour;
  paint.beginPath();
  for (const steps of rings) addRing(paint, steps, width, height);
  paint.fill("evenodd");
  return canvas;
}

function addRing(paint: CanvasRenderingContext2D, steps: number[], width: number, height: number): void {
  let [lon, lat] = [0, 0];
  for (let at = 0; at + 1 < steps.length; at += 2) {
    lon += steps[at] as number;
    lat += steps[at + 1] as number;
    const { x, y } = project(lon / 10, lat / 10, width, height);
    if (at === 0) paint.moveTo(x, y);
    else paint.lineTo(x, y);
  }
  paint.closePath();
}
