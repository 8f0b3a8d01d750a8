// Lists that come in pages: each names the cursor behind its last row.
/** A list that comes in pages. */
export interface PagedList {
  data: unknown[];
  next?: string | null;
}

/** As many pages as one shows at a time: 10,000 rows. */
const PAGES_MAX = 50;

/** All pages of a list as one. `get` fetches a path. */
export async function allPages<Reply extends PagedList>(path: string, get: (path: string) => Promise<Reply>): Promise<Reply> {
  const list = await get(path);
  const data = [...list.data];
  let next = list.next;
  for (let page = 1; next && page < PAGES_MAX; page++) {
    const more = await get(`${path}${path.includes("?") ? "&" : "?"}after=${encodeURIComponent(next)}`);
    data.push(...more.data);
    next = more.next;
  }
  return { ...list, data, next: next ?? null };
}
