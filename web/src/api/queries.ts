// The page's GET requests, one hook each. TanStack Query shares a reply between components and fetches it again.
import { useQuery, type UseQueryResult } from "@tanstack/react-query";
import { isRunning } from "@/market/phases";
import { api, ApiError, forgetLogin, hasLoggedIn, rememberLogin } from "./client";
import { allPages, type PagedList } from "./pages";
import type * as schema from "./schema";

const REFRESH_MS = 10_000;
const REFRESH_FAST_MS = 3_000;

export function useMe(): UseQueryResult<schema.PrincipalInfo | null> {
  return useQuery({ queryKey: ["me"], queryFn: fetchMe, staleTime: 60_000 });
}

async function fetchMe(): Promise<schema.PrincipalInfo | null> {
  if (!hasLoggedIn()) return null;
  try {
    const me = await api<schema.PrincipalInfo>("/v1/me");
    rememberLogin(me.csrf_token);
    return me;
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) {
      forgetLogin();
      return null;
    }
    throw error;
  }
}

/** A null path is not fetched. */
export function useGet<Reply>(path: string | null, everyMs: number | false = REFRESH_MS): UseQueryResult<Reply> {
  return useQuery({
    queryKey: [path],
    queryFn: ({ signal }) => api<Reply>(path as string, { signal }),
    enabled: path !== null,
    refetchInterval: everyMs,
  });
}

/** Like useGet, for a list that comes in pages. */
export function useGetAll<Reply extends PagedList>(path: string | null, everyMs: number | false = REFRESH_MS): UseQueryResult<Reply> {
  return useQuery({
    queryKey: ["all", path],
    queryFn: ({ signal }) => allPages(path as string, (page) => api<Reply>(page, { signal })),
    enabled: path !== null,
    refetchInterval: everyMs,
  });
}

export type Span = "24h" | "30d";
export const SPANS = ["24h", "30d"] as const;

const nodePath = (id: string) => `/v1/nodes/${encodeURIComponent(id)}`;

export const useNetwork = () => useGet<schema.NetworkOverview>("/v1/network");
export const useHistory = (kind: schema.HistoryKind, span: Span) => useGet<schema.NetworkHistory>(`/v1/history?kind=${kind}&span=${span}`);
export const useNodes = (isLoggedIn: boolean, everyMs = REFRESH_MS) => useGetAll<schema.NodeList>(isLoggedIn ? "/v1/nodes" : null, everyMs);
export const useNode = (id: string) => useGet<schema.Node>(nodePath(id), REFRESH_FAST_MS);
export const useUptime = (id: string) => useGet<schema.UptimeCalendar>(`${nodePath(id)}/history`, 60_000);
export const useReputation = (id: string) => useGet<schema.NodeReputation>(`${nodePath(id)}/reputation`);
export const useTrust = (id: string) => useGet<schema.NodeTrust>(`${nodePath(id)}/trust`);
export const useTiers = () => useGet<schema.TierTable>("/v1/tiers");
export const useRewards = () => useGet<schema.AccountRewardList>("/v1/rewards?limit=100");
export const useMatchReport = (id: string | null) => useGet<schema.NodeMatchReport>(id && `${nodePath(id)}/why`);
export const useMatches = (isLoggedIn: boolean) => useGet<schema.MatchList>(isLoggedIn ? "/v1/matches?limit=100" : null, REFRESH_FAST_MS);
export const useMatch = (id: string | null) =>
  useQuery({
    queryKey: ["match", id],
    queryFn: ({ signal }) => api<schema.MatchExplanation>(`/v1/matches/${encodeURIComponent(id as string)}`, { signal }),
    enabled: id !== null,
    refetchInterval: (query) => (query.state.data?.outcome === "running" ? 1_000 : false),
    retry: false,
  });
export const useKeys = (isLoggedIn = true) => useGet<schema.ApiKeyList>(isLoggedIn ? "/v1/keys" : null);
export const useCredits = (isLoggedIn = true) => useGet<schema.CreditBalanceReply>(isLoggedIn ? "/v1/credits" : null);
export const useUsage = (by: "day" | "model" | "key") => useGet<schema.UsageGroupList>(`/v1/usage?by=${by}`);
export const useKeyUsage = (key: string, from: string | null) =>
  useGet<schema.UsageGroupList>(from && `/v1/usage?by=day&key=${key}&from=${from}`);
export const useJobs = () => useGet<schema.JobUsageList>("/v1/usage?by=job&limit=100", 5_000);
export const useEarnings = (by: "day" | "model" | "node") => useGet<schema.EarningsGroupList>(`/v1/earnings?by=${by}`, REFRESH_FAST_MS);
export const useNodeJobs = (id: string) =>
  useGet<schema.AttemptEarningsList>(`/v1/earnings?by=job&limit=50&node=${encodeURIComponent(id)}`, 5_000);
export const PROVIDERS_PATH = "/v1/providers";
export const useProviders = () => useGet<schema.ProviderList>(PROVIDERS_PATH, 5_000);
export const useEarningsSummary = () => useGet<schema.EarningsSummaryReply>("/v1/earnings/summary", REFRESH_FAST_MS);
/** Only where there is a chain. */
export const useLeaseIncome = (hasChain: boolean) => useGet<schema.LeaseIncomeList>(hasChain ? "/v1/earnings/leases" : null, REFRESH_FAST_MS);
export const useVersion = () => useGet<schema.VersionInfo>("/version", false);

export type WhichOrders = "all" | "open";
const MARKET_REFRESH_MS = 2_000;
/** While an auction runs, which is a second or two on a local network. */
const AUCTION_REFRESH_MS = 500;
/** How long the gateway may wait for news of an auction before it answers, and the pause between two such requests. */
const WATCH_WAIT_MS = 3_000;
const WATCH_AGAIN_MS = 100;
const listed = (which: WhichOrders) => `?which=${which}&limit=100`;

export const useMarketOrders = (which: WhichOrders, isWanted = true) =>
  useGet<schema.MarketOrderList>(isWanted ? `/v1/market/orders${listed(which)}` : null, MARKET_REFRESH_MS);
export const useMarketOrder = (id: string) =>
  useQuery({
    queryKey: ["order", id],
    queryFn: ({ signal }) => api<schema.MarketOrder>(`/v1/market/orders/${encodeURIComponent(id)}`, { signal }),
    refetchInterval: (query) => (query.state.data?.state === "open" ? AUCTION_REFRESH_MS : MARKET_REFRESH_MS),
    retry: false,
  });
export const useMarketLeases = (which: WhichOrders, isWanted = true) =>
  useGet<schema.MarketLeaseList>(isWanted ? `/v1/market/leases${listed(which)}` : null, MARKET_REFRESH_MS);
export const useMarketProviders = (isWanted = true) => useGet<schema.MarketProviderList>(isWanted ? "/v1/market/providers?limit=200" : null);
export const useMarketValidators = () => useGet<schema.MarketValidatorList>("/v1/market/validators", REFRESH_FAST_MS);
export const useMarketTables = () => useGet<schema.MarketTables>("/v1/market/tables", false);
/** The newest attempt, for a list: of an auction that runs, it is asked again and again. */
export const useLeaseMatch = (id: string | null) => useMatchQuery(id, ["lease-match", id], () => leaseMatchPath(id, {}), AUCTION_REFRESH_MS);
/**
 * One auction that is watched: the gateway answers as soon as it knows more. That keeps one of the few connections that a
 * browser has to a host, so a page has one of these at most. An empty attempt is the newest.
 */
export const useWatchedMatch = (id: string | null, attempt: string) =>
  useMatchQuery(id, ["watched-match", id, attempt], (before) => leaseMatchPath(id, { ...(attempt && { attempt }), ...waitFor(before) }), WATCH_AGAIN_MS);

function useMatchQuery(id: string | null, queryKey: unknown[], path: (before: schema.LeaseMatch | undefined) => string, everyMs: number): UseQueryResult<schema.LeaseMatch> {
  return useQuery<schema.LeaseMatch>({
    queryKey,
    queryFn: ({ client, signal }) => api<schema.LeaseMatch>(path(client.getQueryData(queryKey)), { signal }),
    enabled: id !== null,
    refetchInterval: (query) => (query.state.data && isRunning(query.state.data.phase.name) ? everyMs : MARKET_REFRESH_MS),
    placeholderData: (before) => (before?.order.id === id ? before : undefined),
    retry: false,
  });
}

function waitFor(before: schema.LeaseMatch | undefined): Record<string, string> {
  return before && isRunning(before.phase.name) ? { have: String(before.version), wait_ms: String(WATCH_WAIT_MS) } : {};
}

function leaseMatchPath(id: string | null, query: Record<string, string>): string {
  const text = new URLSearchParams(query).toString();
  return `/v1/leases/${encodeURIComponent(id ?? "")}/match${text && `?${text}`}`;
}

export const LEASES_PATH = "/v1/leases";
export const useLeases = (isWanted = true) => useGet<schema.LeaseList>(isWanted ? LEASES_PATH : null, MARKET_REFRESH_MS);
/** By its id, its order's id or its name. It is asked again while it may change. */
export const useLease = (id: string) =>
  useQuery({
    queryKey: [LEASES_PATH, id],
    queryFn: ({ signal }) => api<schema.LeaseDetails>(leasePath(id), { signal }),
    refetchInterval: (query) => (query.state.data && isOver(query.state.data) ? false : LEASE_REFRESH_MS),
    retry: false,
  });
/** `version` changes with the lease: its events are asked then, and from time to time. */
export const useLeaseEvents = (id: string | null, version: string) =>
  useQuery({
    queryKey: [LEASES_PATH, id, "events", version],
    queryFn: ({ signal }) => api<schema.LeaseEventList>(`${leasePath(id ?? "")}/events`, { signal }),
    enabled: id !== null,
    refetchInterval: REFRESH_MS,
    placeholderData: (before) => before,
    retry: false,
  });
export const leasePath = (id: string) => `${LEASES_PATH}/${encodeURIComponent(id)}`;
const LEASE_REFRESH_MS = 1_500;

/** Also its refund is known, so nothing about it changes any more. */
function isOver({ phase, ending }: schema.LeaseDetails): boolean {
  return phase === "failed" || (ending !== null && ending.refunded_usd !== null);
}
