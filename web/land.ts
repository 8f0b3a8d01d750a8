// A Vite plugin that makes the outline of all land a small module, from world-atlas (ISC; Natural Earth, public domain).
// A ring is a list of whole tenths of degrees, delta-encoded (each point as its difference from the one before), because
// small numbers compress well.
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

/** A ring that crosses the date line goes on beyond ±180 degrees instead of jumping; its middle is within ±180 degrees. */
function unwrapped(ring: Ring): Ring {
  const [first] = ring;
  if (!first) return [];
  const points: Ring = [first];
  let last = first[0];
  for (const [lon, lat] of ring.slice(1)) {
    last = lon + 360 * Math.round((last - lon) / 360);
    points.push([last, lat]);
  }
  const lons = points.map(([lon]) => lon);
  const shift = 360 * Math.round((Math.min(...lons) + Math.max(...lons)) / 720);
  return points.map(([lon, lat]) => [lon - shift, lat]);
}

/** The part of a ring on one side of a meridian (Sutherland-Hodgman clipping): `side` is 1 for the east, -1 for the west. */
function clip(ring: Ring, meridian: number, side: 1 | -1): Ring {
  const clipped: Ring = [];
  ring.forEach(([lon, lat], at) => {
    const [lastLon, lastLat] = ring.at(at - 1) as [number, number];
    const [isIn, wasIn] = [(lon - meridian) * side >= 0, (lastLon - meridian) * side >= 0];
    if (isIn !== wasIn) clipped.push([meridian, lastLat + ((lat - lastLat) * (meridian - lastLon)) / (lon - lastLon)]);
    if (isIn) clipped.push([lon, lat]);
  });
  return clipped;
}

/** A ring that crosses the date line becomes one ring at each edge of the map. */
function splitAtDateLine(ring: Ring): Ring[] {
  const whole = unwrapped(ring);
  return [-360, 0, 360]
    .map((shift) => whole.map(([lon, lat]): [number, number] => [lon + shift, lat]))
    .map((moved) => clip(clip(moved, -180, 1), 180, -1))
    .filter((part) => new Set(part.map(([lon]) => lon)).size > 1);
}

function deltaEncoded(ring: Ring): number[] {
  const steps: number[] = [];
  let [lastX, lastY] = [0, 0];
  for (const [lon, lat] of ring) {
    const [x, y] = [Math.round(lon * 10), Math.round(lat * 10)];
    if (steps.length && x === lastX && y === lastY) continue;
    steps.push(x - lastX, y - lastY);
    [lastX, lastY] = [x, y];
  }
  return steps;
}

export function packedLand(): number[][] {
  return rings().flatMap(splitAtDateLine).map(deltaEncoded);
}

export function land(): Plugin {
  return {
    name: "land",
    resolveId: (id) => (id === ID ? `\0${ID}` : undefined),
    load: (id) => (id === `\0${ID}` ? `export default ${JSON.stringify(packedLand())};` : undefined),
  };
}
