import assert from "node:assert/strict";
import { test } from "node:test";
import { allPages, type PagedList } from "../src/api/pages.ts";

function server(replies: Record<string, PagedList>) {
  const asked: string[] = [];
  const get = async (path: string): Promise<PagedList> => {
    asked.push(path);
    return replies[path] ?? { data: [] };
  };
  return { asked, get };
}

test("a list of one page is one request", async () => {
  const { asked, get } = server({ "/v1/nodes": { data: [1, 2], next: null } });
  assert.deepEqual((await allPages("/v1/nodes", get)).data, [1, 2]);
  assert.deepEqual(asked, ["/v1/nodes"]);
});

test("the cursor is followed, beside a query of its own", async () => {
  const { asked, get } = server({
    "/v1/nodes?q=a": { data: [1], next: "x=" },
    "/v1/nodes?q=a&after=x%3D": { data: [2], next: "y" },
    "/v1/nodes?q=a&after=y": { data: [3] },
  });
  assert.deepEqual(await allPages("/v1/nodes?q=a", get), { data: [1, 2, 3], next: null });
  assert.equal(asked.length, 3);
});

test("a list without an end is read up to a bound", async () => {
  let count = 0;
  const list = await allPages("/v1/nodes", async (): Promise<PagedList> => ({ data: [count++], next: "more" }));
  assert.equal(list.data.length, 50);
  assert.equal(list.next, "more");
});
