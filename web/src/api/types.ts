// The gateway's replies, as far as the pages use them.

export interface List<T> {
  data: T[];
  next?: string | null;
}

export interface Account {
  id: string;
  name: string;
  email: string | null;
  role: "user" | "owner" | "operator";
  chain_address: string | null;
}

export interface Me {
  account: Account;
  role: Account["role"];
  scopes: string[];
  csrf_token?: string;
}

export type StateName = "online" | "busy" | "suspect" | "offline" | "draining" | "paused";

export interface Totals {
  nodes: Partial<Record<StateName, number>>;
  gpus: number;
  vram_gb: number;
  jobs: number;
  tokens_per_s: number;
  first_token_ms: number | null;
}

export interface PriceRange {
  low: string;
  median: string;
  high: string;
}

export interface NetworkModel {
  id: string;
  nodes: number;
  warm: number;
  measured: number;
  quantizations: string[];
  context_length: number | null;
  prompt_usd_per_mtok: PriceRange;
  completion_usd_per_mtok: PriceRange;
}

export interface GpuClass {
  class: string;
  nodes: number;
  gpus: number;
  vram_gb: number;
  /** Null where all of them ask by the token. */
  hourly_usd_median: string | null;
}

export interface Network {
  signup: "open" | "invite" | "closed";
  billing: boolean;
  development: boolean;
  totals: Totals;
  regions: { region: string; nodes: Partial<Record<StateName, number>> }[];
  classes: GpuClass[];
  models: NetworkModel[];
}

export interface Figures {
  jobs: number;
  failed: number;
  cancelled: number;
  success_rate: number | null;
  tokens: number | null;
  tokens_per_s: number | null;
  first_token_p50_ms: number | null;
  first_token_p95_ms: number | null;
  speed_p50_tps: number | null;
  speed_p5_tps: number | null;
  up: number | null;
  nodes: number;
  gpus: number;
  vram_gb: number;
}

export type Point = Figures & { at: number; name: string };

export interface History extends List<Point> {
  step_s: number;
  totals: Record<string, Figures>;
}

export interface Speed {
  ttft_s: number;
  prefill_tps: number;
  decode_tps: number;
}

export interface NodeModel {
  id: string;
  state: "warm" | "loading" | "on_disk";
  context_length: number | null;
  quantization: string | null;
  claimed: Speed | null;
  measured: Speed | null;
  price: {
    prompt_usd_per_mtok: string;
    completion_usd_per_mtok: string;
    prompt_derivation: string | null;
    completion_derivation: string | null;
  };
}

export interface Node {
  id: string;
  handle: string;
  name: string;
  region: string;
  state: StateName;
  gpu: string;
  gpu_count: number;
  agent_version: string;
  backend: string;
  /** Without a price per hour the owner asks by the token alone. */
  claimed: { vram_bytes: number; tflops: number; hourly_usd: string | null };
  measured: { tflops: number | null };
  models: NodeModel[];
  running: number;
  queued: number;
  slots: number;
  rtt_ms: number;
  in_flight: number;
  jobs_done: number;
  jobs_failed: number;
  last_seen_at: number | null;
  yours: boolean;
  /** Why its owner's rules keep it from new jobs for a while. */
  paused?: string | null;
  gpus?: { model: string; vendor: string; driver: string | null; vram_bytes: number }[];
  /** For its owner and for operators. */
  sensors?: Sensors | null;
}

export interface Sensors {
  power_watts: number | null;
  gpus: { vram_free_bytes: number | null; power_watts: number | null; temperature_c: number | null; utilisation: number | null }[];
}

export interface Day {
  day: string;
  /** Of the time that a gateway looked; null where none did. */
  up: number | null;
  /** These for its owner and for operators. */
  jobs?: number;
  failed?: number;
}

export interface Reputation {
  score: number;
  lower: number;
  half_life_days: number;
  /** These for its owner and for operators. */
  jobs?: number;
  failures?: number;
  causes?: { cause: string; count: number; last_unix_s: number }[];
}

export interface Why {
  node: string;
  name: string;
  matches: number;
  chosen: number;
  outcomes: Record<string, number>;
  lost: { count: number; mean_gap_s: number | null; worst_parts_s: Record<string, number> };
  rejected: Record<string, number>;
  ruled_out: number;
  unlisted: number;
  sentences: string[];
}

export interface Attempt {
  node: string;
  name: string | null;
  outcome: string;
  reason: string | null;
  started_ms: number;
  first_token_ms: number | null;
  ended_ms: number | null;
  tokens: number;
  /** Where in the answer it took over from the node before. */
  continued_from?: { tokens: number; chars: number } | null;
}

export interface Candidate {
  node: string;
  name: string | null;
  region: string | null;
  cost_s: number | null;
  score: number | null;
  parts: Record<string, number>;
  predicted_ttft_s: number;
  cached_tokens: number;
  price_usd: string;
}

/** A later choice, when the node before had failed. */
export interface Move {
  /** Which attempt it led to, the first being 0. */
  attempt: number;
  after_tokens: number;
  chosen: string;
  candidates: Candidate[];
}

export interface Explanation {
  match_id: string | null;
  created_at: number;
  outcome: string;
  policy: string;
  model: string;
  preference: { sort: string | null; weights: Record<string, number> } | null;
  job: { prompt_tokens: number; output_tokens: number; vram_needed_bytes: number | null };
  candidates_total: number;
  funnel: { filter: string; dropped: number; left: number }[];
  rejected: { node: string; name: string | null; reason: string; detail: string }[];
  ranked: Candidate[];
  chosen: string | null;
  /** Else the answer came in one piece, and nobody saw its first token. */
  streamed?: boolean;
  attempts: Attempt[];
  moves?: Move[];
  nearest_relaxations: string[];
  why_nobody?: string;
}

export interface MatchLine {
  match_id: string;
  created_at: number;
  model: string;
  policy: string;
  key_id: string;
  outcome: string;
  candidates_total: number;
  attempts: Attempt[];
}

export interface ApiKey {
  id: string;
  account_id: string;
  name: string;
  prefix: string;
  scopes: string[];
  policy: unknown;
  budget: { usd: string; period: "day" | "week" | "month" } | null;
  requests_per_min: number | null;
  tokens_per_min: number | null;
  created_at: number;
  expires_at: number | null;
  last_used_at: number | null;
  revoked_at: number | null;
  key?: string;
}

export interface Credits {
  balance_usd: string;
  promo_usd: string;
  promo_expires_at: number | null;
  paid_usd: string;
  reserved_usd: string;
  deposited_usd: string;
}

export interface UsageLine {
  name: string;
  jobs: number;
  prompt_tokens: number;
  completion_tokens: number;
  cost_usd: string;
  promo_usd: string;
}

export interface JobLine {
  id: string;
  opened_at: string;
  key_id: string;
  model: string;
  state: string;
  reason: string | null;
  prompt_tokens: number;
  completion_tokens: number;
  cost_usd: string;
  promo_usd: string;
}

export interface EarningSum {
  name: string;
  jobs: number;
  prompt_tokens: number;
  completion_tokens: number;
  fee_usd: string;
  net_usd: string;
  net_promo_usd: string;
}

export interface EarningLine {
  job_id: string;
  opened_at: string;
  model: string;
  outcome: string;
  prompt_tokens: number;
  completion_tokens: number;
  net_usd: string;
  net_promo_usd: string;
  first_token_ms: number | null;
  duration_ms: number;
}

export interface Standing {
  account: string;
  fee_bps: number;
  pending_usd: string;
  batched_usd: string;
  settled_usd: string;
  claimed_usd: string;
  promo_usd: string;
  nodes: { node_id: string; name: string | null; busy_s: number; window_s: number; utilisation: number; working_watts?: number | null }[];
}
