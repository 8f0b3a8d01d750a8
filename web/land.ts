// The outline of all land as a small module: made at build time from world-atlas (ISC; Natural Earth, public domain).
// Rings of whole tenths of degrees, each point as its step from the last, so that it packs well.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { feature } from "topojson-client";
import type { Plugin } from "vite";

const ID = "virtual:land";
const ANTARCTICA_BELOW = -60;

type Ring = [number, number][];

function rings(): Ring[] {
  const file = createRequire(import.meta.url).resolve("world-atlas/land-110m.json");
  const atlas = JSON.parse(readFileSync(file, "utf8"));
  const land = feature(atlas, atlas.objects.land) as unknown as {
    features: { geometry: { coordinates: Ring[][] } }[];
  };
  return land.features
    .flatMap((one) => one.geometry.coordinates.flat())
    .filter((ring) => ring.some(([, lat]) => lat > ANTARCTICA_BELOW));
}

function packed(ring: Ring): number[] {
  const steps: number[] = [];
  let [lastLon, lastLat] = [0, 0];
  for (const [lon, lat] of ring) {
    let x = Math.round(lon * 10);
    if (steps.length && Math.abs(x - lastLon) > 1_800) x += x < lastLon ? 3_600 : -3_600; // over the date line, not back
    const y = Math.round(lat * 10);
    if (steps.length && x === lastLon && y === lastLat) continue;
    steps.push(x - lastLon, y - lastLat);
    [lastLon, lastLat] = [x, y];
  }
  return steps;
}

export function land(): Plugin {
  return {
    name: "land",
    resolveId: (id) => (id === ID ? `\0${ID}` : undefined),
    load: (id) => (id === `\0${ID}` ? `export default ${JSON.stringify(rings().map(packed))};` : undefined),
  };
}
