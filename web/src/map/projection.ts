// The Equal Earth projection (Šavrič, Patterson and Jenny 2018): it keeps areas true and its formula is short.

const A1 = 1.340264;
const A2 = -0.081106;
const A3 = 0.000893;
const A4 = 0.003796;
const M = Math.sqrt(3) / 2;
const NORTH = 79;
const SOUTH = -56;

export interface Point {
  x: number;
  y: number;
}

function raw(lon: number, lat: number): Point {
  const t = Math.asin(M * Math.sin((lat * Math.PI) / 180));
  const t2 = t * t;
  const t6 = t2 * t2 * t2;
  const x = ((lon * Math.PI) / 180) * Math.cos(t);
  return {
    x: x / (M * (A1 + 3 * A2 * t2 + t6 * (7 * A3 + 9 * A4 * t2))),
    y: t * (A1 + A2 * t2 + t6 * (A3 + A4 * t2)),
  };
}

const LEFT = raw(-180, 0).x;
const TOP = raw(0, NORTH).y;
const BOTTOM = raw(0, SOUTH).y;
export const ASPECT = (2 * -LEFT) / (TOP - BOTTOM);

export function project(lon: number, lat: number, width: number, height: number): Point {
  const scale = Math.min(width / (2 * -LEFT), height / (TOP - BOTTOM));
  const point = raw(lon, lat);
  return {
    x: width / 2 + point.x * scale,
    y: (height - (TOP - BOTTOM) * scale) / 2 + (TOP - point.y) * scale,
  };
}
