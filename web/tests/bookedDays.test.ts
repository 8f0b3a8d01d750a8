import assert from "node:assert/strict";
import { test } from "node:test";
import { bookedDays } from "../src/market/bookedDays.ts";

const DAY_S = 86_400;
const NOON_S = 20_000 * DAY_S + DAY_S / 2;

test("a lease over midnight is on both days, and today is one of those to come", () => {
  const [yesterday, today, tomorrow] = bookedDays([{ placed_at: NOON_S - DAY_S, left_at: null, ends_at: NOON_S + DAY_S / 2 + 3600 }], NOON_S, { past: 1, coming: 1 });
  assert.deepEqual([yesterday?.share, today?.share, tomorrow?.share], [0.5, 1, 1 / 24]);
  assert.deepEqual([yesterday?.isComing, today?.isToday, tomorrow?.isComing], [false, true, true]);
});

test("two leases at the same time fill a day once", () => {
  const both = { placed_at: NOON_S - 7200, left_at: NOON_S - 3600, ends_at: null };
  const [day] = bookedDays([both, { ...both, left_at: NOON_S }], NOON_S, { past: 0, coming: 0 });
  assert.deepEqual([day?.share, day?.leases], [2 / 24, 2]);
});

test("what has no end yet is not booked beyond now, and a free day is free", () => {
  const [today, tomorrow] = bookedDays([{ placed_at: NOON_S - 3600, left_at: null, ends_at: null }], NOON_S, { past: 0, coming: 1 });
  assert.deepEqual([today?.share, tomorrow?.share, tomorrow?.leases], [1 / 24, 0, 0]);
});
