// The page's GET requests, one hook each. TanStack Query shares a reply between components and fetches it again.
import { useQuery, type UseQueryResult } from "@tanstack/react-query";
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
export const useVersion = () => useGet<schema.VersionInfo>("/version", false);
