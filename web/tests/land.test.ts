import assert from "node:assert/strict";
import { test } from "node:test";
import { packedLand } from "../land.ts";

type Place = [name: string, lon: number, lat: number];

const LAND: Place[] = [
  ["Berlin", 13.4, 52.5],
  ["Madrid", -3.7, 40.4],
  ["Moscow", 37.6, 55.8],
  ["Timbuktu", -3.0, 16.8],
  ["Kinshasa's hinterland", 20, -3],
  ["Johannesburg", 28, -26.2],
  ["Delhi", 77.2, 28.6],
  ["Xi'an", 108.9, 34.3],
  ["Yakutsk", 129.7, 62],
  ["Chukotka, west of the date line", 175, 67],
  ["Chukotka, east of the date line", -175, 67],
  ["Vanua Levu", 179.3, -16.6],
  ["Alice Springs", 133.9, -23.7],
  ["Denver", -105, 39.7],
  ["Fairbanks", -147.7, 64.8],
  ["Manaus", -60, -3.1],
  ["Cordoba in Argentina", -64.2, -31.4],
  ["Greenland", -42, 72],
];
const SEA: Place[] = [
  ["the North Atlantic", -40, 40],
  ["the South Atlantic", -15, -30],
  ["the Pacific", -150, 10],
  ["the Pacific at the date line", 180, 20],
  ["the Pacific, west", 160, 30],
  ["the Indian Ocean", 80, -20],
  ["the Mediterranean", 18, 35],
  ["the Caspian Sea", 51, 42],
  ["the Bering Sea", -178, 58],
];

function decoded(steps: number[]): [number, number][] {
  let [x, y] = [0, 0];
  return Array.from({ length: steps.length / 2 }, (_, at) => [(x += steps[at * 2] as number) / 10, (y += steps[at * 2 + 1] as number) / 10]);
}

const RINGS = packedLand().map(decoded);

/** The even-odd rule, as the canvas fills: a point is inside if an odd number of edges is to its east. */
function isLand(lon: number, lat: number): boolean {
  let isIn = false;
  for (const ring of RINGS)
    ring.forEach(([x, y], at) => {
      const [lastX, lastY] = ring.at(at - 1) as [number, number];
      if (y > lat !== lastY > lat && lon < x + ((lastX - x) * (lat - y)) / (lastY - y)) isIn = !isIn;
    });
  return isIn;
}

for (const [name, lon, lat] of LAND) test(`${name} is land`, () => assert.equal(isLand(lon, lat), true));
for (const [name, lon, lat] of SEA) test(`${name} is sea`, () => assert.equal(isLand(lon, lat), false));

test("every ring is on the map, and none crosses it from edge to edge", () => {
  for (const ring of RINGS) {
    const lons = ring.map(([lon]) => lon);
    assert.ok(Math.min(...lons) >= -180 && Math.max(...lons) <= 180);
    for (const [at, lon] of lons.entries()) assert.ok(Math.abs(lon - (lons.at(at - 1) as number)) < 90);
  }
});
