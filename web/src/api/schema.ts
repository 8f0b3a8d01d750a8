// Written by `make api-types` from the gateway's types.
// Do not edit: change src/sparewatt/protocol/api/.

export type ActorName = "network" | "provider" | "renter" | "validators";
export type BondSource = "credits" | "earnings";
export type BudgetPeriod = "day" | "month" | "week";
export type Capability = "chat" | "completions" | "continue_prefill" | "continue_raw" | "embeddings" | "json_schema" | "logprobs" | "responses" | "tools" | "tools_generic" | "vision";
export type CheckStateName = "barred" | "passing" | "suspect" | "unchecked";
export type ChosenStatus = "active" | "left" | "maintenance";
export type DepositWarningName = "deposit_empty" | "deposit_low";
export type EgressName = "none" | "public";
export type FailureCauseName = "backend_broke" | "backend_error" | "backend_timeout" | "backend_unreachable" | "link_lost" | "overclaimed" | "protocol" | "timed_out";
export type HistoryKind = "error" | "model" | "network";
export type HistoryKindName = "auction_opened" | "cancelled" | "candidate_skipped" | "closed" | "deposit_added" | "deposit_low" | "expired" | "handed_over" | "matched" | "notice_given" | "ordered" | "paused" | "placed" | "resumed" | "started" | "taken_over" | "unmatched" | "unplaced" | "update_proposed" | "updated";
export type HistorySpan = "1h" | "24h" | "30d";
export type JobStateName = "cancelled" | "done" | "failed";
export type LeasePhase = "closed" | "expired" | "failed" | "matched" | "open" | "sending" | "unmatched";
export type LeaseStateName = "active" | "closed" | "paused" | "pending" | "unplaced" | "vacant";
export type LimitReset = "daily" | "monthly" | "weekly";
export type MatchBidState = "certified" | "committed" | "eligible" | "lost" | "refused" | "rejected" | "standby" | "uncertified" | "unrevealed" | "won";
export type MatchPhaseName = "certified" | "commit" | "matched" | "over" | "reveal" | "unmatched" | "vote";
export type MatcherFilterName = "accepting" | "capacity" | "checked" | "context" | "measured" | "model" | "not_tried" | "online" | "shortlist" | "timed" | "vram";
export type MessageStopReason = "end_turn" | "max_tokens" | "refusal" | "stop_sequence" | "tool_use";
export type ModelState = "loading" | "on_disk" | "warm";
export type NodeStateName = "busy" | "draining" | "offline" | "online" | "paused" | "suspect";
export type OrderStateName = "closed" | "expired" | "matched" | "open" | "unmatched";
export type OutcomeName = "cancelled" | "done" | "failed" | "refused" | "running" | "timed_out";
export type PhaseName = "certified" | "commit" | "over" | "reveal" | "vote";
export type ProgramPhaseName = "exited" | "failed" | "paused" | "pulling" | "restarting" | "running" | "starting" | "stopped" | "waiting";
export type ProviderStatusName = "active" | "left" | "maintenance" | "registered" | "suspended" | "unregistered";
export type RegistryStatusName = "active" | "left" | "maintenance" | "registered" | "suspended";
export type RejectionName = "already_tried" | "draining" | "full" | "no_model" | "not_measured" | "not_shortlisted" | "not_timed" | "offline" | "prompt_too_long" | "suspended" | "too_little_vram";
export type ResponseStatus = "cancelled" | "completed" | "failed" | "in_progress" | "incomplete" | "queued";
export type RoleName = "operator" | "owner" | "user";
export type ScopeName = "admin" | "inference" | "lease" | "node";
export type SortName = "latency" | "price" | "throughput";
export type TierName = "community" | "datacenter" | "verified";
export type VerdictKindName = "probe" | "rerun";
export type VerdictResultName = "failed" | "passed";

/** A field that is left out keeps its value. The policy `null` removes the policy. */
export interface AccountChange {
  name?: string;
  policy?: Record<string, unknown> | string | null;
}

export interface AccountClosureBody {
  password: string;
}

export interface AccountInfo {
  id: string;
  name: string;
  email: string | null;
  role: RoleName;
  policy: Record<string, unknown> | string | null;
  chain_address: string | null;
  created_at: number;
  closed_at: number | null;
}

/** One page, the oldest account first. */
export interface AccountList {
  object: "list";
  data: AccountInfo[];
}

/** What one node of the account got in one era. */
export interface AccountReward {
  era: number;
  until: number;
  node: string;
  availability_micro: number;
  uptime_micro: number;
  quality_micro: number;
  total_micro: number;
  total_usd: string;
}

/** Newest first. */
export interface AccountRewardList {
  object: "list";
  data: AccountReward[];
  next: string | null;
  waiting_micro: number;
  waiting_usd: string;
  posted_micro: number;
  posted_usd: string;
  claimed_micro: number;
  claimed_usd: string;
}

/** An amount, either as `usd` or as `nano`. */
export interface AmountBody {
  usd?: string | number | null;
  nano?: number | null;
  currency?: string;
  id?: string | null;
}

export interface AnthropicError {
  type: "error";
  error: { type: string; message: string; };
  request_id: string;
}

/** A model as Anthropic's clients read it: to a request with the header `anthropic-version`. */
export interface AnthropicModel {
  type: "model";
  id: string;
  display_name: string;
  created_at: string;
  lifecycle: "active";
  max_input_tokens: number | null;
}

export interface AnthropicModelList {
  data: AnthropicModel[];
  first_id: string | null;
  last_id: string | null;
  has_more: boolean;
}

/** An API key without the key itself. A limit of null is none of the key's own. */
export interface ApiKey {
  id: string;
  account_id: string;
  name: string;
  prefix: string;
  scopes: ScopeName[];
  policy: Record<string, unknown> | string | null;
  budget: BudgetInfo | null;
  requests_per_min: number | null;
  tokens_per_min: number | null;
  created_at: number;
  expires_at: number | null;
  last_used_at: number | null;
  revoked_at: number | null;
}

export interface ApiKeyList {
  object: "list";
  data: ApiKey[];
}

/** An answer in Anthropic's shape. */
export interface AssistantMessage {
  id: string;
  type: "message";
  role: "assistant";
  model: string;
  content: Record<string, unknown>[];
  stop_reason: MessageStopReason | null;
  stop_sequence: string | null;
  usage: MessageUsage;
}

/** What one node earned with one attempt of a job. Fee and both nets sum to what the payer paid for the attempt. */
export interface AttemptEarnings {
  job_id: string;
  opened_at: string;
  position: number;
  node_id: string;
  model: string;
  outcome: OutcomeName;
  prompt_tokens: number;
  completion_tokens: number;
  prompt_usd_per_mtok: string;
  completion_usd_per_mtok: string;
  fee_usd: string;
  fee_nano: number;
  net_usd: string;
  net_nano: number;
  net_promo_usd: string;
  net_promo_nano: number;
  first_token_ms: number | null;
  duration_ms: number;
}

/** Newest first. */
export interface AttemptEarningsList {
  object: "list";
  data: AttemptEarnings[];
  next: string | null;
}

export interface AuctionPhase {
  name: MatchPhaseName;
  round: number;
  ends_in_ms: number | null;
}

export interface BondBody {
  usd?: string | number | null;
  nano?: number | null;
  currency?: string;
  id?: string | null;
  source?: BondSource;
}

/** How much a key may spend in each period, once exactly in nano-dollars and once as a decimal string. */
export interface BudgetInfo {
  nano: number;
  usd: string;
  period: BudgetPeriod;
}

/** An amount for each period: either `usd`, in dollars, or `nano`, in nano-dollars. */
export interface BudgetTerms {
  period: BudgetPeriod;
  usd?: string | null;
  nano?: number | null;
}

/** One day (UTC) of a node. The fields after `up` are for its owner and for operators only. */
export interface CalendarDay {
  day: string;
  up: number | null;
  up_s?: number;
  known_s?: number;
  jobs?: number;
  failed?: number;
  tokens?: number;
}

/** The books compared with the chain, at a final block. */
export interface ChainAudit {
  in_order: boolean;
  block: number;
  addresses: number;
  differences: ChainDifference[];
  pool_micro: number;
  uncovered_nano: number;
  shortfall_nano: number;
}

/** A pocket of which the books say something else than the chain. */
export interface ChainDifference {
  account: string | null;
  pocket: string;
  id: string;
  books_micro: number;
  chain_micro: number;
}

/** What an account has on the chain, by final events, and what of its credits waits for the chain. */
export interface ChainHoldingsInfo {
  address: string | null;
  is_held: boolean;
  escrow_usd: string;
  escrow_nano: number;
  bonds_usd: string;
  bonds_nano: number;
  owed_usd: string;
  owed_nano: number;
  wallet_usd: string;
  wallet_nano: number;
  held_usd: string;
  held_nano: number;
  exits_usd: string;
  exits_nano: number;
  exits_ready_at: number | null;
}

/** Fields about the index are null until the gateway follows a chain. */
export interface ChainStatus {
  object: "chain";
  rpc: string | null;
  chain_id: number | null;
  contracts: Record<string, string>;
  start_block: number | null;
  indexed_block: number | null;
  head_block: number | null;
  events: number;
  outbox: Record<string, number>;
  senders: Record<string, number>;
  payout_roots: string | null;
  note: string | null;
}

/** One event of a streamed chat: some text, the usage at the end, or an error in place of the rest. */
export interface ChatChunk {
  id?: string;
  object?: string;
  created?: number;
  model?: string;
  choices?: ChatChunkChoice[];
  usage?: TokenUsage | null;
  error?: ErrorObject | null;
}

export interface ChatChunkChoice {
  index?: number;
  delta?: ChatDelta;
  logprobs?: Record<string, unknown> | null;
  finish_reason?: string | null;
}

export interface ChatCompletion {
  id: string;
  object: "chat.completion";
  created: number;
  model: string;
  choices: ChatCompletionChoice[];
  usage: TokenUsage | null;
}

export interface ChatCompletionChoice {
  index: number;
  message: ChatCompletionMessage;
  logprobs: Record<string, unknown> | null;
  finish_reason: string | null;
}

export interface ChatCompletionMessage {
  role: string;
  content: string | null;
  reasoning_content: string | null;
  tool_calls: Record<string, unknown>[] | null;
}

/** The part of a choice's message that a chunk adds. */
export interface ChatDelta {
  role?: string | null;
  content?: string | null;
  reasoning_content?: string | null;
  tool_calls?: Record<string, unknown>[] | null;
}

export interface ChatRequest {
  model: string;
  models?: string[] | null;
  stream?: boolean | null;
  stream_options?: { include_usage?: boolean | null; } | null;
  n?: number | null;
  stop?: string | string[] | null;
  seed?: number | null;
  temperature?: number | null;
  top_p?: number | null;
  presence_penalty?: number | null;
  frequency_penalty?: number | null;
  provider?: Record<string, unknown>;
  messages: ({ role: "developer" | "system" | "user" | "assistant" | "tool"; content: string | ContentPart[] | null; })[];
  max_tokens?: number | null;
  max_completion_tokens?: number | null;
  logprobs?: boolean | null;
  top_logprobs?: number | null;
  tools?: Record<string, unknown>[] | null;
  tool_choice?: "none" | "auto" | "required" | Record<string, unknown> | null;
  parallel_tool_calls?: boolean | null;
  response_format?: Record<string, unknown> | null;
}

/** What one check found of one node. */
export interface CheckVerdict {
  id: string;
  check: string;
  at_unix_s: number;
  node: string;
  kind: VerdictKindName;
  result: VerdictResultName;
  state: CheckStateName;
  model: string;
  witness: string | null;
  agreed: number | null;
  differs: boolean | null;
  difference: string[] | null;
  hazard: number;
  seed: string | null;
  limits: number[];
  prompt: Record<string, string>[] | null;
  answers: CheckedAnswer[];
  before: CheckedAnswer[];
  is_drift: boolean;
  retrial_of: string | null;
  retried: boolean;
}

/** One node's answer, as far as it is kept. */
export interface CheckedAnswer {
  node: string;
  owner: string;
  trusted: boolean;
  digest: string;
  pieces: number;
  text: string[] | null;
}

/** What a cloud publishes for the same card, for comparison. */
export interface CloudPrice {
  gpu: string;
  cloud: string;
  instance: string;
  hourly_usd: string;
  as_of: string;
  source: string;
}

export interface CollectBody {
  id?: string | null;
}

export interface Collected {
  id: string;
  tx: string | null;
}

/** Replaces a whole conversation in the `input` of a later request. */
export interface CompactionItem {
  id: string;
  type: "compaction";
  encrypted_content: string;
}

export interface CompletionRequest {
  model: string;
  models?: string[] | null;
  stream?: boolean | null;
  stream_options?: { include_usage?: boolean | null; } | null;
  n?: number | null;
  stop?: string | string[] | null;
  seed?: number | null;
  temperature?: number | null;
  top_p?: number | null;
  presence_penalty?: number | null;
  frequency_penalty?: number | null;
  provider?: Record<string, unknown>;
  prompt: string | string[] | number[] | number[][];
  max_tokens?: number | null;
  best_of?: number | null;
  echo?: boolean | null;
  logprobs?: number | null;
  suffix?: string | null;
}

export interface CompliancePair {
  id: number;
  standard: string;
  auditor: string;
}

export type ContentPart = { type: "text"; text: string; } | { type: "image_url"; image_url: { url: string; }; };

/** How much of the answer earlier nodes had written when this node took over. */
export interface ContinuationPoint {
  tokens: number;
  chars: number;
}

export interface ConversationChange {
  metadata: Record<string, string> | null;
}

export interface ConversationDeletion {
  id: string;
  object: "conversation.deleted";
  deleted: boolean;
}

export interface ConversationId {
  id: string;
}

export interface ConversationObject {
  id: string;
  object: "conversation";
  created_at: number;
  metadata: Record<string, string>;
}

export interface CreatedKey {
  id: string;
  account_id: string;
  name: string;
  prefix: string;
  scopes: ScopeName[];
  policy: Record<string, unknown> | string | null;
  budget: BudgetInfo | null;
  requests_per_min: number | null;
  tokens_per_min: number | null;
  created_at: number;
  expires_at: number | null;
  last_used_at: number | null;
  revoked_at: number | null;
  key: string;
}

/** The first two fields are OpenRouter's. */
export interface CreditBalance {
  total_credits: number;
  total_usage: number;
  balance_usd: string;
  balance_nano: number;
  promo_usd: string;
  promo_nano: number;
  promo_expires_at: number | null;
  paid_usd: string;
  paid_nano: number;
  reserved_usd: string;
  reserved_nano: number;
  granted_usd: string;
  granted_nano: number;
  deposited_usd: string;
  deposited_nano: number;
  expired_usd: string;
  expired_nano: number;
  chain: ChainHoldingsInfo | null;
}

export interface CreditBalanceReply {
  data: CreditBalance;
}

/** The result of a grant or a deposit. */
export interface CreditPosting {
  id: string;
  account: string;
  posted: boolean;
  credits: CreditBalance;
}

export interface DepositBody {
  usd?: string | number | null;
  nano?: number | null;
  currency?: string;
  id?: string | null;
  adapter?: string;
}

/** A match that was not made: no id, no attempts, nothing stored. */
export interface DryRunExplanation {
  policy: string;
  model: string;
  preference: MatchPreference | null;
  job: JobEstimate;
  candidates_total: number;
  funnel: FunnelStep[];
  rejected: NodeRejection[];
  ranked: RankedNode[];
  chosen: string | null;
  nearest_relaxations: string[];
  is_trial: boolean;
  match_id: null;
  dry_run: boolean;
  outcome: "none";
  attempts: MatchAttempt[];
  moves: MatchReassignment[];
  why_nobody?: string;
  policy_effective: Record<string, unknown>;
  created_at: number;
}

export interface DryRunRequest {
  model: string;
  prompt_tokens?: number;
  max_tokens?: number | null;
  policy?: string | null;
  provider?: Record<string, unknown>;
  capabilities?: Capability[];
}

/** What was earned on one day, with one model, or by one node. */
export interface EarningsGroup {
  name: string;
  jobs: number;
  prompt_tokens: number;
  completion_tokens: number;
  fee_usd: string;
  fee_nano: number;
  net_usd: string;
  net_nano: number;
  net_promo_usd: string;
  net_promo_nano: number;
}

export interface EarningsGroupList {
  object: "list";
  data: EarningsGroup[];
  next: string | null;
}

/** An owner's earnings by state: withheld, then pending, then batched, then settled, then claimed. */
export interface EarningsSummary {
  account: string;
  fee_bps: number;
  withheld_usd: string;
  withheld_nano: number;
  pending_usd: string;
  pending_nano: number;
  batched_usd: string;
  batched_nano: number;
  settled_usd: string;
  settled_nano: number;
  claimed_usd: string;
  claimed_nano: number;
  promo_usd: string;
  promo_nano: number;
  treasury: TreasuryBalance;
  nodes: NodeUtilisation[];
}

export interface EarningsSummaryReply {
  data: EarningsSummary;
}

export interface EmbeddingItem {
  index: number;
  object: "embedding";
  embedding: number[] | string;
}

export interface EmbeddingList {
  object: "list";
  data: EmbeddingItem[];
  model: string;
  usage: TokenUsage | null;
}

export interface EmbeddingRequest {
  model: string;
  input: string | string[] | number[] | number[][];
  encoding_format?: "float" | "base64" | null;
  dimensions?: number | null;
  provider?: Record<string, unknown>;
}

export interface Era {
  era: number;
  since: number;
  until: number;
  pool_micro: number;
  pool_usd: string;
  given_micro: number;
  given_usd: string;
  carried_nano: number;
  inputs_hash: string;
  epoch: number | null;
  root: string | null;
  state: "claimable" | "empty" | "posted" | "ready";
}

/** Everything that an era's rewards follow from. */
export interface EraInputs {
  era: number;
  since: number;
  until: number;
  rule: RewardRule;
  held_nano: number;
  inference_fees_nano: number;
  lease_fees_nano: number;
  nodes: NodeEraInputs[];
  validators: ValidatorEraInputs[];
}

/** Newest first. */
export interface EraList {
  object: "list";
  data: Era[];
  next: string | null;
  held_usd: string;
  held_nano: number;
  era_s: number;
}

/** An era with everything that it was computed from, and everything that follows. */
export interface EraReply {
  era: number;
  since: number;
  until: number;
  pool_micro: number;
  pool_usd: string;
  given_micro: number;
  given_usd: string;
  carried_nano: number;
  inputs_hash: string;
  epoch: number | null;
  root: string | null;
  state: "claimable" | "empty" | "posted" | "ready";
  inputs: EraInputs;
  rewards: EraRewards;
}

/** What follows from an era's inputs. */
export interface EraRewards {
  era: number;
  pool_micro: number;
  validators_micro: number;
  given_micro: number;
  carried_nano: number;
  nodes: NodeReward[];
  validators: ValidatorReward[];
}

export interface Error {
  error: { message: string; type: string; param: string | null; code: string | null; };
}

/** OpenAI's error object. Model servers that write one into a stream leave out some of its fields. */
export interface ErrorObject {
  message?: string | null;
  type?: string | null;
  param?: string | null;
  code?: string | number | null;
}

export interface ExecRequest {
  command: string[];
  tty?: boolean;
  columns?: number;
  rows?: number;
}

/** Shares in millionths. Other accounts get them rounded to a tenth. */
export interface FacetReport {
  name: "availability" | "completion" | "correctness" | "leases" | "speed";
  score_ppm: number;
  lower_ppm: number;
  good?: number;
  bad?: number;
  rule: string;
}

/** The newest auction of a lease order, with what its accepted certificate says. All of it is on the chain. */
export interface FeedAuction {
  id: string;
  at: number;
  attempt: number;
  state: OrderStateName;
  gpus: number;
  commit_ms: number;
  reveal_ms: number;
  bids: number | null;
  votes: number;
  voters: number;
  share: number;
  certified_at: number | null;
}

/** Fields without changes are left out. */
export interface FeedDelta {
  at: number;
  totals: NetworkTotals;
  added?: FeedNode[];
  nodes?: number[];
  matches?: FeedMatch[];
  more_matches?: number;
  auctions?: FeedAuction[];
}

/** The public view of a match. The account that made the request, and operators, get the details by its id. */
export interface FeedMatch {
  id: string;
  at: number;
  model: string;
  outcome: OutcomeName;
  candidates: number;
  eligible: number;
  nodes: (number | null)[];
  region: string | null;
  size: "L" | "M" | "S" | "XL" | "XS";
  first_token_ms: number | null;
  moved: number;
}

/** The public view of a node. An array on the wire, in this order. */
export type FeedNode = [number: number, handle: string, region: string, longitude: number | null, latitude: number | null, vram_gb: number, gpu_class: string, gpus: number, state: number];

export interface FeedSnapshot {
  at: number;
  states: NodeStateName[];
  nodes: FeedNode[];
  totals: NetworkTotals;
  matches: FeedMatch[];
  auctions: FeedAuction[];
}

/** One filter of the matcher, or one field of the request's policy. */
export interface FunnelStep {
  filter: string;
  dropped: number;
  left: number;
}

/** One settled job: OpenRouter's fields as far as they apply here, and ours from `state` on. */
export interface Generation {
  id: string;
  upstream_id: null;
  model: string;
  created_at: string;
  streamed: boolean;
  cancelled: boolean;
  finish_reason: string | null;
  total_cost: number;
  usage: number;
  cache_discount: null;
  is_byok: boolean;
  provider_name: string | null;
  latency: number | null;
  generation_time: number | null;
  tokens_prompt: number;
  tokens_completion: number;
  native_tokens_prompt: number;
  native_tokens_completion: number;
  state: JobStateName;
  reason: string | null;
  key_id: string;
  cost_usd: string;
  cost_nano: number;
  promo_usd: string;
  promo_nano: number;
  attempts: GenerationAttempt[];
}

export interface GenerationAttempt {
  job_id: string;
  opened_at: string;
  position: number;
  node_id: string;
  model: string;
  outcome: OutcomeName;
  prompt_tokens: number;
  completion_tokens: number;
  prompt_usd_per_mtok: string;
  completion_usd_per_mtok: string;
  fee_usd: string;
  fee_nano: number;
  net_usd: string;
  net_nano: number;
  net_promo_usd: string;
  net_promo_nano: number;
  first_token_ms: number | null;
  duration_ms: number;
  node_name: string;
}

export interface GenerationReply {
  data: Generation;
}

/** The nodes of one class of GPU that are not offline. */
export interface GpuClassSummary {
  class: string;
  nodes: number;
  gpus: number;
  vram_gb: number;
  hourly_usd_median: string;
}

export interface GpuMeasures {
  copy_bytes_s: number | null;
  fp16_tflops: number | null;
}

export interface GpuModelEntry {
  id: number;
  name: string;
  class: number;
}

/** One GPU now. A value that its driver does not report is None. */
export interface GpuSensors {
  vram_free_bytes: number | null;
  power_watts: number | null;
  temperature_c: number | null;
  utilisation: number | null;
}

export interface GrantBody {
  usd?: string | number | null;
  nano?: number | null;
  currency?: string;
  id?: string | null;
  account: string;
  days?: number | null;
  memo?: string | null;
}

/** What happened in a span of time. For an error only `jobs` is counted: the requests that got it. */
export interface HistoryFigures {
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

/** `HistoryFigures` of one step. No subclass: its own fields would come last in the JSON and in the CSV. */
export interface HistoryPoint {
  at: number;
  name: string;
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

export interface IncompleteDetails {
  reason: "content_filter" | "max_output_tokens";
}

export interface InputTokenCount {
  object: "response.input_tokens";
  input_tokens: number;
}

export interface InputTokenDetails {
  cached_tokens: number;
  cache_write_tokens: number;
}

/** The matcher's estimate of a job's size. */
export interface JobEstimate {
  prompt_tokens: number;
  output_tokens: number;
  vram_needed_bytes: number | null;
}

/** One settled job. Times are ISO 8601, in UTC. */
export interface JobUsage {
  id: string;
  opened_at: string;
  closed_at: string;
  account_id: string;
  key_id: string;
  model: string;
  state: JobStateName;
  reason: string | null;
  finish_reason: string | null;
  stream: boolean;
  prompt_tokens: number;
  completion_tokens: number;
  cost_usd: string;
  cost_nano: number;
  promo_usd: string;
  promo_nano: number;
}

/** Newest first. */
export interface JobUsageList {
  object: "list";
  data: JobUsage[];
  next: string | null;
}

export interface JoinToken {
  token: string;
  expires_at: number;
  join_line: string | null;
}

export interface JsonRpcCall {
  method: string;
  params?: unknown[] | Record<string, unknown>;
  id?: number | string | null;
  jsonrpc?: string;
}

export interface JsonRpcError {
  code: number;
  message: string;
  data?: unknown;
}

/** Has either a result or an error. */
export interface JsonRpcReply {
  jsonrpc: "2.0";
  id: number | string | null;
  result?: unknown;
  error?: JsonRpcError;
}

/** A field that is left out keeps its value; null removes a limit. */
export interface KeyChange {
  name?: string;
  policy?: Record<string, unknown> | string | null;
  budget?: BudgetTerms | null;
  expires_in_s?: number | null;
  expires_at?: number | null;
  requests_per_min?: number | null;
  tokens_per_min?: number | null;
}

/** The key of the request, with OpenRouter's fields. Amounts without a unit in their name are dollars. */
export interface KeyInfo {
  label: string;
  name: string;
  usage: number;
  usage_daily: number;
  usage_weekly: number;
  usage_monthly: number;
  usage_nano: number;
  limit: number | null;
  limit_usd: string | null;
  limit_remaining: number | null;
  limit_reset: LimitReset | null;
  is_free_tier: boolean;
  is_provisioning_key: boolean;
  rate_limit: KeyRateLimit;
  expires_at: string | null;
}

export interface KeyInfoReply {
  data: KeyInfo;
}

export interface KeyRateLimit {
  requests: number;
  interval: "1m";
}

export interface Lease {
  id: string;
  name: string;
  order_id: string | null;
  phase: LeasePhase;
  problem: string | null;
  created_at: number;
  image: string;
  gpus: number;
  cpus: number;
  memory_gb: number;
  disk_gb: number;
  secrets: string[];
  duration_s: number;
  max_hourly_usd: string;
  deposit_usd: string;
  spec_hash: string;
  order: MarketOrder | null;
  max_spend_usd: string | null;
  money: LeaseMoney | null;
  ending: LeaseEnding | null;
  uptime: LeaseUptime | null;
  program: LeaseProgram | null;
}

export interface LeaseActBody {
  id?: string | null;
}

export interface LeaseBody {
  image: string;
  command?: string[] | string;
  env?: Record<string, string | number | boolean> | string[];
  secrets?: string[];
  ports?: number[];
  disk_gb?: number | string | null;
  resources?: LeaseResources | null;
  duration?: string | number;
  count?: number;
  near?: string | null;
  policy?: Record<string, unknown> | string;
  max_spend?: number | string | null;
  egress?: EgressName;
  gateway?: boolean;
  name?: string | null;
  id?: string | null;
}

export interface LeaseChangePlan {
  hourly_usd: string;
  duration_s: number;
  ends_at: number;
  cost_usd: string;
  top_up_usd: string;
}

export interface LeaseChanged {
  request: LeaseRequestInfo;
  lease: Lease;
}

export interface LeaseCreated {
  id: string;
  name: string;
  created: boolean;
  max_hourly_usd: string;
  total_usd: string;
  leases: Lease[];
  notes: string[];
}

export interface LeaseDetails {
  id: string;
  name: string;
  order_id: string | null;
  phase: LeasePhase;
  problem: string | null;
  created_at: number;
  image: string;
  gpus: number;
  cpus: number;
  memory_gb: number;
  disk_gb: number;
  secrets: string[];
  duration_s: number;
  max_hourly_usd: string;
  deposit_usd: string;
  spec_hash: string;
  order: MarketOrder | null;
  max_spend_usd: string | null;
  money: LeaseMoney | null;
  ending: LeaseEnding | null;
  uptime: LeaseUptime | null;
  program: LeaseProgram | null;
  content: Record<string, unknown>;
  content_hash: string;
  missing_secrets: string[];
}

export interface LeaseEnding {
  reason: string;
  who: ActorName;
  why: string;
  at: number | null;
  paid_usd: string;
  refunded_usd: string | null;
  compensation_usd: string;
}

export interface LeaseEvent {
  at: number;
  kind: HistoryKindName;
  who: ActorName;
  text: string;
  reason: string | null;
  provider: string | null;
  hourly_usd: string | null;
  duration_s: number | null;
  amount_usd: string | null;
  paid_usd: string | null;
  refunded_usd: string | null;
  compensation_usd: string | null;
  tx: string | null;
}

export interface LeaseEventList {
  object: "list";
  data: LeaseEvent[];
}

export interface LeaseExtendBody {
  duration: string | number;
  max_spend?: number | string | null;
  dry_run?: boolean;
  id?: string | null;
}

/** One lease of one of your providers. Times are Unix seconds of the chain. */
export interface LeaseIncome {
  id: string;
  provider: string;
  node: string;
  state: LeaseStateName | "left";
  hourly_usd: string;
  placed_at: number;
  left_at: number | null;
  ends_at: number | null;
  earned_usd: string;
  due_usd: string;
}

export interface LeaseIncomeList {
  object: "list";
  data: LeaseIncome[];
  earned_usd: string;
  due_usd: string;
  hourly_usd: string;
  leases: number;
}

export interface LeaseList {
  object: "list";
  data: Lease[];
  next: string | null;
}

/** One line of `…/logs?format=json`. An empty line in between is a keep-alive. */
export interface LeaseLogPiece {
  stream?: "stderr" | "stdout";
  text?: string;
  error?: ErrorObject | null;
}

export interface LeaseMatch {
  object: "lease_match";
  order: MatchOrderSummary;
  attempt: number;
  attempts: number[];
  version: number;
  phase: AuctionPhase;
  counts: MatchCounts;
  why: string | null;
  relaxations: MatchRelaxation[];
  bids: MatchBid[];
  declines: MatchDecline[];
  refusals: MatchRefusal[];
  lists: MatchListEntry[];
  votes: MatchVote[];
  voters: MatchVoter[];
  certificate: MatchCertificate | null;
  record: boolean;
}

export interface LeaseMatchRecord {
  order_id: string;
  attempt: number;
  validator: string;
  record: unknown;
}

/** What a lease costs, as of `as_of`. */
export interface LeaseMoney {
  as_of: number;
  hourly_usd: string;
  spent_usd: string;
  left_usd: string;
  deposited_usd: string;
  compensated_usd: string;
  runway_s: number | null;
  runs_until: number | null;
  limit: "deposit" | "duration" | null;
  paused_s: number;
  grace_ends_at: number | null;
  warning: DepositWarningName | null;
  next_step: string | null;
}

/** What is ordered: the fields of an order file. `docs/reference/leases.md` describes each. */
export interface LeaseOrderBody {
  image: string;
  command?: string[] | string;
  env?: Record<string, string | number | boolean> | string[];
  secrets?: string[];
  ports?: number[];
  disk_gb?: number | string | null;
  resources?: LeaseResources | null;
  duration?: string | number;
  count?: number;
  near?: string | null;
  policy?: Record<string, unknown> | string;
  max_spend?: number | string | null;
  egress?: EgressName;
  gateway?: boolean;
  name?: string | null;
}

/** What the provider says of what runs in a lease. Its log, a command or a port show whether that is true. */
export interface LeaseProgram {
  phase: ProgramPhaseName | null;
  since: number | null;
  trouble: string | null;
  exit_code: number | null;
  restarts: number;
  confirmed_running: boolean | null;
  warning: string | null;
}

/** What an order would meet and cost. Nothing was sent or held. */
export interface LeaseQuote {
  name: string;
  count: number;
  offers: StandingOffer[];
  able: number;
  providers: number;
  funnel: PolicyFilterStep[];
  nearest_relaxations: string[];
  prices: OfferPriceRange | null;
  cloud_prices: CloudPrice[];
  cloud_note: string | null;
  max_hourly_usd: string | null;
  max_hourly_source: "offers" | "policy" | null;
  duration_s: number;
  deposit_usd: string | null;
  total_usd: string | null;
  covers_s: number | null;
  max_attempts: number;
  notes: string[];
}

/** What was asked of the chain. */
export interface LeaseRequestInfo {
  id: string;
  kind: string;
  state: string;
  reason: string | null;
  tx: string | null;
}

export interface LeaseResources {
  gpus?: number | null;
  cpus?: number | string | null;
  memory_gb?: number | string | null;
}

export interface LeaseScaleBody {
  count: number;
  max_spend?: number | string | null;
  dry_run?: boolean;
  id?: string | null;
}

/** The leases of a name, after or, of a dry run, before. */
export interface LeaseScaled {
  name: string;
  done: boolean;
  kept: Lease[];
  ended: Lease[];
  ordered: Lease[];
  to_order: number;
  deposit_usd: string;
}

export interface LeaseSecrets {
  names: string[];
  missing: string[];
  attempt: number;
  candidates: string[];
  chain_id: number;
  deployment_order: string;
}

export interface LeaseSecretsBody {
  attempt: number;
  sealed: Record<string, Record<string, string>>;
}

/** The public address of a lease; without port and address once it is closed. */
export interface LeaseSite {
  lease: string;
  port: number | null;
  url: string | null;
}

export interface LeaseSiteBody {
  port: number;
}

/** Opens one socket of one lease, once: `…/exec?ticket=…`, from a page of this gateway. */
export interface LeaseTicket {
  ticket: string;
  lease: string;
  expires_at: number;
}

export interface LeaseTopUpBody {
  usd: number | string;
  max_spend?: number | string | null;
  id?: string | null;
}

export interface LeaseUpdateBody {
  hourly_usd?: number | string | null;
  duration?: string | number | null;
  image?: string | null;
  command?: string[] | string | null;
  env?: Record<string, string | number | boolean> | string[];
  unset?: string[];
  max_spend?: number | string | null;
  dry_run?: boolean;
  id?: string | null;
}

/** The outcome of an extension or another change, or what it would be. */
export interface LeaseUpdated {
  plan: LeaseChangePlan;
  update: LeaseRequestInfo | null;
  top_up: LeaseRequestInfo | null;
  accepted: boolean;
  lease: Lease;
}

/** How much of the time since its first start it ran, of that in which it was to run; by the chain's events. */
export interface LeaseUptime {
  as_of: number;
  percent: string;
  running_s: number;
  down_s: number;
  paused_s: number;
  waiting_s: number;
  outages: number;
  credit: LeaseUptimeCredit | null;
}

/** What the operator's fund credits the renter of a lease that ended below 99.9 %. */
export interface LeaseUptimeCredit {
  state: "credited" | "due" | "none";
  usd: string;
  text: string;
  at: number | null;
}

export interface LedgerAudit {
  in_order: boolean;
  sum_nano: number;
  unbalanced_causes: number;
  open_clearing_accounts: number;
  wrong_balances: number;
  overdrawn: number;
  chain: ChainAudit | null;
  chain_note: string | null;
}

/** The audit after balances were computed again from the postings. */
export interface LedgerRebuild {
  in_order: boolean;
  sum_nano: number;
  unbalanced_causes: number;
  open_clearing_accounts: number;
  wrong_balances: number;
  overdrawn: number;
  chain: ChainAudit | null;
  chain_note: string | null;
  balances_corrected: number;
}

export interface Liveness {
  status: "ok";
}

export interface LoginBody {
  email: string;
  password: string;
}

export interface LoginLink {
  url: string;
  expires_at: number;
}

export interface LoginLinkBody {
  token: string;
}

export interface LogoutResult {
  logged_out: boolean;
}

/** What validators signed and the chain accepted in the newest attempt, with a winner or with none eligible. */
export interface MarketCertificate {
  task_digest: string;
  round: number;
  bid_count: number;
  signers: string[];
  accepted_at: number;
}

/** A lease has the id of its order. */
export interface MarketLease {
  id: string;
  renter: string;
  state: LeaseStateName;
  provider: string | null;
  term: number;
  position: number;
  hourly_usd: string;
  deposit_usd: string;
  locked_usd: string;
  created_at: number;
  confirm_by: number;
  running_since: number | null;
  ends_at: number | null;
  paused_at: number | null;
  may_close_at: number | null;
  hand_over_reason: string | null;
  closed_at: number | null;
  close_reason: string | null;
  final: boolean;
}

export interface MarketLeaseList {
  latest_block: number;
  final_block: number;
  object: "list";
  data: MarketLease[];
  next: string | null;
}

export interface MarketOrder {
  id: string;
  renter: string;
  state: OrderStateName;
  reason: string | null;
  attempt: number;
  max_attempts: number;
  created_at: number;
  opened_at: number;
  next_attempt_at: number | null;
  expires_at: number;
  gpu_units: number;
  gpu_models: number;
  gpu_names: string[];
  min_vram_gb: number;
  max_hourly_usd: string;
  duration_s: number;
  commit_ms: number;
  reveal_ms: number;
  only: string[];
  deposit_usd: string;
  charged_usd: string;
  refunded_usd: string | null;
  spec_hash: string;
  policy_hash: string;
  stake_version: number;
  snapshot_epoch: number;
  candidates: string[];
  certificate: MarketCertificate | null;
  failed: string[];
  lease: MarketLease | null;
  final: boolean;
}

export interface MarketOrderList {
  latest_block: number;
  final_block: number;
  object: "list";
  data: MarketOrder[];
  next: string | null;
}

export interface MarketProvider {
  id: string;
  node_key: string | null;
  status: RegistryStatusName;
  registered_at: number;
  country: number;
  zone: number;
  tier: number;
  gpu_model: number;
  vram_gb: number;
  gpu_units: number;
  price_hint_usd: string;
  attested: number;
  free_usd: string;
  locked_usd: string;
  unbonding_usd: string;
  final: boolean;
}

export interface MarketProviderList {
  latest_block: number;
  final_block: number;
  object: "list";
  data: MarketProvider[];
  next: string | null;
}

/** The table of providers that validators agreed on last. */
export interface MarketSnapshot {
  epoch: number;
  root: string;
  count: number;
  posted_at: number;
}

/** The ids that masks and claims on chain consist of. An id never changes its meaning; 0 is none or unknown. */
export interface MarketTables {
  countries: TableEntry[];
  zones: ZoneEntry[];
  gpu_models: GpuModelEntry[];
  gpu_classes: TableEntry[];
  tiers: TableEntry[];
  compliance: CompliancePair[];
}

export interface MarketValidator {
  id: string;
  vote_key: string;
  url: string;
  weight_usd: string;
  stake_usd: string;
  pending_usd: string;
  unbonding_usd: string;
  slashed_usd: string;
  jailed: boolean;
  certificates: number;
  votes: number;
  last_vote_at: number | null;
  recent: ValidatorVotes;
}

export interface MarketValidatorList {
  latest_block: number;
  final_block: number;
  object: "list";
  stake_version: number;
  total_usd: string;
  snapshot: MarketSnapshot | null;
  data: MarketValidator[];
}

/** One node's attempt at a job. Times are milliseconds since the request arrived. */
export interface MatchAttempt {
  node: string;
  name: string | null;
  outcome: OutcomeName;
  reason: string | null;
  started_ms: number;
  first_token_ms: number | null;
  ended_ms: number | null;
  tokens: number;
  chars: number;
  continued_from: ContinuationPoint | null;
}

export interface MatchBid {
  provider: string;
  bid_id: string | null;
  state: MatchBidState;
  status: number;
  reason: string | null;
  price_usd: string | null;
  score: MatchScore | null;
  rank: number | null;
  committed_at: string[];
  revealed_at: string[];
}

export interface MatchCandidate {
  provider: string;
  position: number;
  price_usd: string;
  pay_usd: string;
}

export interface MatchCertificate {
  task_digest: string;
  round: number;
  bid_count: number;
  bid_root: string;
  candidates: MatchCandidate[];
  pay_usd: string | null;
  signers: string[];
  tx: string | null;
  accepted_at: number | null;
}

export interface MatchCounts {
  asked: number;
  bids: number;
  declines: number;
  certified: number;
  revealed: number;
  eligible: number;
  by_reason: Record<string, number>;
}

export interface MatchDecline {
  provider: string;
  code: number;
  reason: string;
}

/** A past match, or one whose job still runs. */
export interface MatchExplanation {
  policy: string;
  model: string;
  preference: MatchPreference | null;
  job: JobEstimate;
  candidates_total: number;
  funnel: FunnelStep[];
  rejected: NodeRejection[];
  ranked: RankedNode[];
  chosen: string | null;
  nearest_relaxations: string[];
  is_trial: boolean;
  match_id: string;
  dry_run: boolean;
  created_at: number;
  outcome: OutcomeName;
  streamed: boolean;
  attempts: MatchAttempt[];
  moves: MatchReassignment[];
}

export interface MatchList {
  object: "list";
  data: MatchSummary[];
}

/** A signed list: the inclusion receipt of every bid that it names. */
export interface MatchListEntry {
  kind: "commit" | "reveal";
  validator: string;
  bid_ids: string[];
}

/** Matches in which the node could have had the job and another node had a lower cost. */
export interface MatchLosses {
  count: number;
  mean_gap_s: number | null;
  worst_parts_s: Record<string, number>;
}

export interface MatchOrderSummary {
  id: string;
  renter: string;
  state: string;
  reason: string | null;
  attempt: number;
  max_attempts: number;
  opened_at: number;
  expires_at: number;
  max_hourly_usd: string;
  gpu_units: number;
  duration_s: number;
  commit_ms: number;
  reveal_ms: number;
  stake_version: number;
  snapshot_epoch: number;
  refunded: boolean;
}

/** Weights of the request that differ from its ranking policy. */
export interface MatchPreference {
  sort: SortName | null;
  weights: Record<string, number>;
}

/** Why this node took over after the one before it had failed. */
export interface MatchReassignment {
  attempt: number;
  after_tokens: number;
  chosen: string;
  candidates: RankedNode[];
}

/** A message that a validator did not take. Its own word: nobody signs it. */
export interface MatchRefusal {
  validator: string;
  provider: string;
  code: number;
  reason: string;
  late_by_ms: number;
}

/** The smallest change of one field that would have admitted a provider. */
export interface MatchRelaxation {
  field: string;
  value: string;
  providers: number;
}

/** score = (price + latency value * round trip) * 1,000,000 / p_ok; the lowest wins. */
export interface MatchScore {
  score: string;
  price_uusd: number;
  latency_uusd: number;
  rtt_ms: number;
  p_ok_ppm: number;
  uptime_ppm: number;
  reputation_ppm: number;
}

export interface MatchSummary {
  match_id: string;
  created_at: number;
  model: string;
  policy: string;
  key_id: string;
  outcome: OutcomeName;
  candidates_total: number;
  streamed: boolean;
  attempts: MatchAttempt[];
}

export interface MatchVote {
  validator: string;
  round: number;
  task_digest: string;
  agrees: boolean | null;
}

/** A validator with weight at the order's stake version. */
export interface MatchVoter {
  vote_key: string;
  operator: string;
  weight_usd: string;
  leads: number[];
  heard: boolean;
  problem: string | null;
}

export interface MessageCountRequest {
  model: string;
  messages: ({ role: "user" | "assistant" | "system"; content: string | Record<string, unknown>[]; })[];
  system?: string | Record<string, unknown>[] | null;
  stream?: boolean | null;
  stop_sequences?: string[] | null;
  temperature?: number | null;
  top_p?: number | null;
  top_k?: number | null;
  tools?: Record<string, unknown>[] | null;
  tool_choice?: Record<string, unknown> | null;
  thinking?: { type: "enabled" | "adaptive" | "disabled"; } | null;
  output_config?: Record<string, unknown> | null;
  provider?: Record<string, unknown>;
}

export interface MessageTokenCount {
  input_tokens: number;
}

export interface MessageUsage {
  input_tokens: number;
  cache_creation_input_tokens: number;
  cache_read_input_tokens: number;
  output_tokens: number;
  cost?: number;
}

export interface MessagesRequest {
  model: string;
  messages: ({ role: "user" | "assistant" | "system"; content: string | Record<string, unknown>[]; })[];
  system?: string | Record<string, unknown>[] | null;
  stream?: boolean | null;
  stop_sequences?: string[] | null;
  temperature?: number | null;
  top_p?: number | null;
  top_k?: number | null;
  tools?: Record<string, unknown>[] | null;
  tool_choice?: Record<string, unknown> | null;
  thinking?: { type: "enabled" | "adaptive" | "disabled"; } | null;
  output_config?: Record<string, unknown> | null;
  provider?: Record<string, unknown>;
  max_tokens: number | null;
}

export interface Model {
  id: string;
  object: "model";
  created: number;
  owned_by: string;
  context_length: number | null;
  capabilities: string[];
  aliases: string[];
  quantizations: string[];
  nodes_online: number;
  warm: number;
  pricing: ModelPricing;
}

/** An operator's word for what an id means. */
export interface ModelAlias {
  name: string;
  target: string;
  created_at: number;
}

export interface ModelAliasList {
  object: "list";
  data: ModelAlias[];
}

/** A model that clients asked for and no node had. */
export interface ModelDemand {
  model: string;
  requests: number;
  keys: number;
}

/** A page of up to 200 models, those of the most owners first. */
export interface ModelList {
  object: "list";
  data: Model[];
  next: string | null;
}

/** Dollars per million tokens, as decimal strings, each with a sentence that says how it was derived. */
export interface ModelPrice {
  prompt_usd_per_mtok: string;
  completion_usd_per_mtok: string;
  prompt_derivation: string;
  completion_derivation: string;
  notice: string | null;
}

/** The lowest price of all nodes, in dollars per token, as decimal strings. */
export interface ModelPricing {
  prompt: string;
  completion: string;
}

/** How fast a model runs on a node: a curve for prompts, one for decoding steps. What was not measured is not there. A prompt of T tokens, alone: `ttft_s + T / prefill_tps + T² * prefill_square_s`. A decoding step with n answers: `1 / decode_tps + (n - 1) * step_per_job_s`, and `step_per_token_s` for each token in the contexts of all of them. */
export interface ModelSpeed {
  first_token_s: number;
  ttft_s: number;
  prefill_tps: number;
  prefill_square_s: number;
  decode_tps: number;
  step_per_job_s?: number;
  step_per_token_s?: number;
  prefill_pace?: number;
  decode_pace?: number;
  batch?: number;
  batch_decode_tps?: number;
}

export interface NetworkHistory {
  object: "list";
  data: HistoryPoint[];
  kind: HistoryKind;
  span: HistorySpan;
  step_s: number;
  totals: Record<string, HistoryFigures>;
}

/** A model, over the nodes that have it and are not offline. */
export interface NetworkModel {
  id: string;
  nodes: number;
  warm: number;
  measured: number;
  quantizations: string[];
  context_length: number | null;
  capabilities: string[];
  prompt_usd_per_mtok: PriceRange;
  completion_usd_per_mtok: PriceRange;
}

export interface NetworkOverview {
  object: "network";
  at: number;
  signup: "closed" | "invite" | "open";
  billing: boolean;
  chain: boolean;
  development: boolean;
  totals: NetworkTotals;
  regions: RegionNodes[];
  classes: GpuClassSummary[];
  models: NetworkModel[];
}

export interface NetworkTotals {
  nodes: Partial<Record<NodeStateName, number>>;
  gpus: number;
  vram_gb: number;
  jobs: number;
  tokens_per_s: number;
  first_token_ms: number | null;
}

export interface NewConversation {
  metadata?: Record<string, string> | null;
  items?: Record<string, unknown>[] | null;
}

export interface NewConversationItems {
  items: Record<string, unknown>[];
}

export interface NewJoinToken {
  life_s?: number;
  lease?: string | null;
}

/** The name and limits of a new key, and what it may do. */
export interface NewKey {
  name?: string;
  policy?: Record<string, unknown> | string | null;
  budget?: BudgetTerms | null;
  expires_in_s?: number | null;
  expires_at?: number | null;
  requests_per_min?: number | null;
  tokens_per_min?: number | null;
  scopes?: string[];
}

export interface NewModelAlias {
  name: string;
  target: string;
}

/** The session's token itself is in the cookie that comes with this reply. */
export interface NewSession {
  account: AccountInfo;
  csrf_token: string;
  notice?: string;
}

export interface Node {
  id: string;
  handle: string;
  name: string;
  region: string;
  state: NodeStateName;
  gpu: string;
  gpu_count: number;
  agent_version: string;
  backend: string;
  claimed: NodeClaims;
  measured: NodeMeasures;
  gpus: NodeGpu[];
  paused: string | null;
  kv_used: number | null;
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
  sensors: NodeSensors | null;
}

/** Where a node stands, why, and what would change it. */
export interface NodeChecks {
  object: "node_checks";
  node: string;
  name: string;
  state: CheckStateName;
  passed: number;
  failed_probes: number;
  trusted: boolean;
  checked_share: number;
  barred_until_unix_s: number | null;
  sentences: string[];
  verdicts: CheckVerdict[];
  withheld_nano?: number;
  withheld_promo_nano?: number;
}

/** What the node reports of itself and no gateway has verified. */
export interface NodeClaims {
  vram_bytes: number;
  tflops: number;
  hourly_usd: string | null;
}

/** What gateways counted of one node in one era. */
export interface NodeEraInputs {
  node: string;
  payee: string | null;
  gpu_class: string;
  gpu_units: number;
  tier: TierName;
  up_s: number;
  known_s: number;
  days: number;
  done: number;
  failed: number;
  checks_passed: number;
  checks_failed: number;
  payers_micro: number[];
  payers_done: number[];
  fees_micro: number;
}

export interface NodeFailureCount {
  cause: FailureCauseName;
  count: number;
  last_unix_s: number;
}

/** One GPU, as its driver describes it. */
export interface NodeGpu {
  model: string;
  vendor: string;
  driver: string | null;
  vram_bytes: number;
  measured: GpuMeasures;
}

/** A page of all nodes; with a query, of those that its policy allows. Only then the fields after `next` are there. A page has up to 200 nodes, and fewer where these have very many models. */
export interface NodeList {
  object: "list";
  data: Node[];
  next: string | null;
  policy?: Record<string, unknown>;
  total?: number;
  allowed?: number;
  funnel?: PolicyFilterStep[];
  nearest_relaxations?: string[];
}

/** The outcome of recent matches for one node. */
export interface NodeMatchReport {
  node: string;
  name: string;
  matches: number;
  chosen: number;
  outcomes: Partial<Record<OutcomeName, number>>;
  lost: MatchLosses;
  rejected: Partial<Record<MatcherFilterName, number>>;
  ruled_out: number;
  unlisted: number;
  overclaimed: number;
  wanted: ModelDemand[];
  sentences: string[];
}

export interface NodeMeasures {
  tflops: number | null;
}

/** One model on one node. */
export interface NodeModel {
  id: string;
  served_as: string | null;
  state: ModelState;
  context_length: number | null;
  quantization: string | null;
  weights_digest: string | null;
  capabilities: Capability[] | null;
  claimed: ModelSpeed | null;
  measured: ModelSpeed | null;
  price: ModelPrice;
}

export interface NodeRejection {
  node: string;
  name: string | null;
  reason: RejectionName;
  detail: string;
}

/** The fields after `half_life_days` are for the node's owner and for operators only. */
export interface NodeReputation {
  node: string;
  name: string;
  score: number;
  lower: number;
  half_life_days: number;
  jobs?: number;
  failures?: number;
  causes?: NodeFailureCount[];
}

/** One node's part, with every factor of its weight. */
export interface NodeReward {
  node: string;
  payee: string | null;
  claimed_units: number;
  worked_units: number;
  idle_units: number;
  verified_units: number;
  tier_ppm: number;
  availability_ppm: number;
  ramp_ppm: number;
  quality_ppm: number;
  weight: number;
  most_micro: number;
  availability_micro: number;
  uptime_micro: number;
  quality_micro: number;
  why: string;
}

/** What the machine measured of itself, as of its last heartbeat. */
export interface NodeSensors {
  power_watts: number | null;
  gpus: GpuSensors[];
}

export interface NodeTierReport {
  tier: TierName;
  since: number | null;
  next_tier: TierName | null;
  keeps?: TierTerm[];
  wants?: TierTerm[];
}

export interface NodeTrust {
  node: string;
  name: string;
  tier: NodeTierReport;
  reputation_ppm: number;
  half_life_days: number;
  facets: FacetReport[];
  days?: RecordDayReport[];
  era?: number;
  reward?: NodeReward;
  sentences?: string[];
}

/** How busy a node was, and what power it drew. */
export interface NodeUtilisation {
  node_id: string;
  name: string | null;
  slots: number | null;
  busy_s: number;
  work_s: number;
  window_s: number;
  utilisation: number;
  working_watts: number | null;
  working_watts_over_s: number | null;
}

export interface OfferPriceRange {
  least_usd: string;
  median_usd: string;
  dearest_usd: string;
}

export interface OllamaChatAnswer {
  role: "assistant";
  content: string;
  thinking?: string;
  tool_calls?: Record<string, unknown>[];
}

export interface OllamaChatReply {
  model: string;
  created_at: string;
  done: boolean;
  done_reason?: "length" | "load" | "stop" | "unload";
  total_duration?: number;
  load_duration?: number;
  prompt_eval_count?: number;
  prompt_eval_duration?: number;
  eval_count?: number;
  eval_duration?: number;
  message: OllamaChatAnswer;
}

export interface OllamaChatRequest {
  model: string;
  stream?: boolean | null;
  format?: "" | "json" | Record<string, unknown> | null;
  options?: Record<string, unknown> | null;
  think?: boolean | "low" | "medium" | "high" | "max" | null;
  provider?: Record<string, unknown>;
  messages?: ({ role: "system" | "user" | "assistant" | "tool"; content?: string | null; images?: string[] | null; tool_calls?: Record<string, unknown>[] | null; tool_name?: string | null; })[] | null;
  tools?: Record<string, unknown>[] | null;
}

export interface OllamaEmbedRequest {
  model: string;
  input: string | string[];
  dimensions?: number | null;
}

export interface OllamaEmbedding {
  embedding: number[];
}

export interface OllamaEmbeddings {
  model: string;
  embeddings: number[][];
  total_duration: number;
  load_duration: number;
  prompt_eval_count: number;
}

export interface OllamaError {
  error: string;
}

export interface OllamaGenerateReply {
  model: string;
  created_at: string;
  done: boolean;
  done_reason?: "length" | "load" | "stop" | "unload";
  total_duration?: number;
  load_duration?: number;
  prompt_eval_count?: number;
  prompt_eval_duration?: number;
  eval_count?: number;
  eval_duration?: number;
  response: string;
  thinking?: string;
}

export interface OllamaGenerateRequest {
  model: string;
  stream?: boolean | null;
  format?: "" | "json" | Record<string, unknown> | null;
  options?: Record<string, unknown> | null;
  think?: boolean | "low" | "medium" | "high" | "max" | null;
  provider?: Record<string, unknown>;
  prompt?: string | null;
  suffix?: string | null;
  system?: string | null;
  raw?: boolean | null;
  images?: string[] | null;
}

export interface OllamaModel {
  name: string;
  model: string;
  modified_at: string;
  size: number;
  digest: string;
  details: OllamaModelDetails;
}

export interface OllamaModelDetails {
  parent_model: string;
  format: string;
  family: string;
  families: string[];
  parameter_size: string;
  quantization_level: string;
}

export interface OllamaModelInfo {
  modelfile: string;
  parameters: string;
  template: string;
  modified_at: string;
  details: OllamaModelDetails;
  model_info: Record<string, unknown>;
  capabilities: string[];
}

export interface OllamaModelList {
  models: OllamaModel[];
}

export interface OllamaPromptRequest {
  model: string;
  prompt: string;
}

/** A model that some node has loaded. */
export interface OllamaRunningModel {
  name: string;
  model: string;
  size: number;
  digest: string;
  details: OllamaModelDetails;
  context_length: number;
}

export interface OllamaRunningModelList {
  models: OllamaRunningModel[];
}

export interface OllamaShowRequest {
  model?: string | null;
  name?: string | null;
}

export interface OllamaVersion {
  version: string;
}

/** An invitation or a password reset token. The gateway stores only its hash, so it is shown only here. */
export interface OneTimeToken {
  token: string;
  expires_at: number;
}

export interface OutputTokenDetails {
  reasoning_tokens: number;
}

/** The caller's account after a change. */
export interface OwnAccount {
  account: AccountInfo;
}

export interface OwnAddress {
  address: string | null;
  is_held: boolean;
  to_sign: string | null;
}

export interface OwnAddressBody {
  address: string;
  signature?: string;
}

export interface PasswordChangeBody {
  current_password: string;
  password: string;
}

export interface PasswordChangeResult {
  changed: boolean;
}

export interface PasswordResetBody {
  token: string;
  password: string;
}

export interface PasswordResetRequestBody {
  email: string;
}

/** The same whether or not an account has this e-mail address. */
export interface PasswordResetRequestResult {
  requested: boolean;
}

/** One batch from the point of view of one account. */
export interface Payout {
  epoch: number;
  created_at: number;
  address: string;
  amount_micro: number;
  amount_usd: string;
  earned_micro: number;
  earned_usd: string;
  state: "claimed" | "posted" | "ready";
  posted_at: number | null;
}

export interface PayoutBatch {
  epoch: number;
  created_at: number;
  root: string;
  leaves: number;
  promised_micro: number;
  promised_usd: string;
  added_micro: number;
  added_usd: string;
  state: "posted" | "ready";
  posted_at: number | null;
  posted_tx: string | null;
}

export interface PayoutBatchCreation {
  made: boolean;
  batch: PayoutBatch | null;
}

/** A batch with a page of its leaves, in the order of the tree. */
export interface PayoutBatchLeaves {
  epoch: number;
  created_at: number;
  root: string;
  leaves: number;
  promised_micro: number;
  promised_usd: string;
  added_micro: number;
  added_usd: string;
  state: "posted" | "ready";
  posted_at: number | null;
  posted_tx: string | null;
  data: PayoutLeaf[];
  next: string | null;
}

/** Newest first. */
export interface PayoutBatchList {
  object: "list";
  data: PayoutBatch[];
  next: string | null;
}

/** One claim on the chain that has ended. */
export interface PayoutClaim {
  address: string;
  epoch: number | null;
  amount_micro: number;
  amount_usd: string;
  state: "claimed" | "failed";
  reason: string | null;
  tx: string | null;
}

export interface PayoutClaimList {
  object: "list";
  data: PayoutClaim[];
  account: string;
  claimed_micro: number;
  claimed_usd: string;
  waiting_micro: number;
  waiting_usd: string;
}

/** What an address has earned and spent in all. It does not name the account: leaves are public. */
export interface PayoutLeaf {
  address: string;
  earned_micro: number;
  spent_micro: number;
}

/** Newest first. */
export interface PayoutList {
  object: "list";
  data: Payout[];
  next: string | null;
}

/** What an address shows to the settlement contract to be paid. */
export interface PayoutProof {
  epoch: number;
  created_at: number;
  root: string;
  leaves: number;
  promised_micro: number;
  promised_usd: string;
  added_micro: number;
  added_usd: string;
  state: "posted" | "ready";
  posted_at: number | null;
  posted_tx: string | null;
  leaf: PayoutLeaf;
  index: number;
  path: string[];
}

/** One filter of a policy, in the order of application. */
export interface PolicyFilterStep {
  filter: string;
  dropped: number;
  left: number;
}

/** In dollars, as decimal strings of three digits: more would identify nodes. */
export interface PriceRange {
  low: string;
  median: string;
  high: string;
}

/** The account that a request acts for, and what the request's key or session may do. */
export interface PrincipalInfo {
  account: AccountInfo;
  role: RoleName;
  scopes: ScopeName[];
  key: ApiKey | null;
  csrf_token?: string;
}

export interface Provider {
  id: string;
  node: string;
  name: string;
  held: boolean;
  status: ProviderStatusName;
  offers_leases: boolean;
  bond_usd: string;
  bond_nano: number;
  free_usd: string;
  free_nano: number;
  locked_usd: string;
  locked_nano: number;
  unbonding_usd: string;
  unbonding_nano: number;
  unbonded_at: number | null;
}

/** The result of an act. */
export interface ProviderChanged {
  changed: boolean;
  request: ProviderRequest | null;
  provider: Provider;
}

export interface ProviderList {
  object: "list";
  data: Provider[];
}

/** What was asked of the chain. */
export interface ProviderRequest {
  id: string;
  kind: string;
  state: string;
  tx: string | null;
}

/** Counts only grow, so that a client computes rates from two replies with the same `instance`. */
export interface Pulse {
  object: "pulse";
  at: number;
  started_at: number;
  instance: string;
  totals: PulseTotals;
  running: number;
  waiting: number;
  tokens_written: number;
  errors: Record<string, number>;
  first_token_bounds_s: number[];
  models: PulseModel[];
  busiest: PulseNode[];
  troubled: PulseNode[];
}

/** A model that is served or was requested. Requests and tokens are counted since the gateway started. */
export interface PulseModel {
  id: string;
  nodes: number;
  warm: number;
  running: number;
  waiting: number;
  requests: Record<string, number>;
  prompt_tokens: number;
  completion_tokens: number;
  first_token_counts: number[];
}

export interface PulseNode {
  id: string;
  name: string;
  region: string;
  gpu: string;
  state: NodeStateName;
  paused: string | null;
  running: number;
  queued: number;
  slots: number;
  tokens: number;
  jobs_done: number;
  jobs_failed: number;
  rtt_ms: number;
  power_watts: number | null;
  temperature_c: number | null;
  utilisation: number | null;
}

export interface PulseTotals {
  nodes: Partial<Record<NodeStateName, number>>;
  gpus: number;
  vram_gb: number;
}

/** A node that passed all filters. */
export interface RankedNode {
  node: string;
  name: string | null;
  region: string | null;
  cost_s: number | null;
  score: number | null;
  parts: Record<string, number>;
  predicted_ttft_s: number;
  cached_tokens: number;
  price_usd: string;
  quantization: string | null;
  served_as: string | null;
}

export interface Readiness {
  status: "not_ready" | "ready";
  nodes_serving: number;
  causes: ReadinessCause[];
}

export interface ReadinessCause {
  code: string;
  message: string;
}

/** What the record is computed from, by day. */
export interface RecordDayReport {
  day: string;
  up_s: number;
  known_s: number;
  good_units: number;
  bad_units: number;
  checks_passed: number;
  checks_failed: number;
}

export interface RegionNodes {
  region: string;
  nodes: Partial<Record<NodeStateName, number>>;
}

export interface RegisterBody {
  node: string;
}

export interface ResponseCompaction {
  id: string;
  object: "response.compaction";
  created_at: number;
  output: CompactionItem[];
  usage: ResponseUsage | null;
}

export interface ResponseDeletion {
  id: string;
  object: "response";
  deleted: boolean;
}

export interface ResponseError {
  code: "invalid_prompt" | "rate_limit_exceeded" | "server_error";
  message: string;
}

/** A page of the items that a response was made from. */
export interface ResponseItemList {
  object: "list";
  data: Record<string, unknown>[];
  first_id: string | null;
  last_id: string | null;
  has_more: boolean;
}

/** A response in its current state. A field that the request did not set has its default here. */
export interface ResponseObject {
  id: string;
  object: "response";
  created_at: number;
  completed_at: number | null;
  status: ResponseStatus;
  error: ResponseError | null;
  incomplete_details: IncompleteDetails | null;
  model: string;
  previous_response_id: string | null;
  instructions: string | null;
  output: Record<string, unknown>[];
  tools: Record<string, unknown>[];
  tool_choice: string | Record<string, unknown>;
  parallel_tool_calls: boolean;
  max_tool_calls: number | null;
  text: ResponseText;
  reasoning: ResponseReasoning;
  truncation: "disabled";
  max_output_tokens: number | null;
  temperature: number;
  top_p: number;
  presence_penalty: number;
  frequency_penalty: number;
  top_logprobs: number;
  usage: ResponseUsage | null;
  store: boolean;
  background: boolean;
  service_tier: "default";
  metadata: Record<string, string>;
  user: string | null;
  safety_identifier: string | null;
  prompt_cache_key: string | null;
  conversation?: ConversationId;
}

export interface ResponseReasoning {
  effort: string | null;
  summary: string | null;
}

export interface ResponseRequest {
  model: string;
  input?: string | Record<string, unknown>[] | null;
  instructions?: string | null;
  previous_response_id?: string | null;
  store?: boolean | null;
  stream?: boolean | null;
  background?: boolean | null;
  tools?: Record<string, unknown>[] | null;
  tool_choice?: "none" | "auto" | "required" | Record<string, unknown> | null;
  parallel_tool_calls?: boolean | null;
  text?: { format?: Record<string, unknown> | null; } | null;
  reasoning?: { effort?: string | null; } | null;
  max_output_tokens?: number | null;
  temperature?: number | null;
  top_p?: number | null;
  top_logprobs?: number | null;
  include?: string[] | null;
  metadata?: Record<string, string> | null;
  provider?: Record<string, unknown>;
}

export interface ResponseText {
  format: Record<string, unknown>;
  verbosity?: "high" | "low" | "medium";
}

export interface ResponseUsage {
  input_tokens: number;
  input_tokens_details: InputTokenDetails;
  output_tokens: number;
  output_tokens_details: OutputTokenDetails;
  total_tokens: number;
  cost?: number;
}

export interface RevokedKey {
  id: string;
  account_id: string;
  name: string;
  prefix: string;
  scopes: ScopeName[];
  policy: Record<string, unknown> | string | null;
  budget: BudgetInfo | null;
  requests_per_min: number | null;
  tokens_per_min: number | null;
  created_at: number;
  expires_at: number | null;
  last_used_at: number | null;
  revoked_at: number | null;
  revoked: boolean;
}

/** The result of a deposit of the operator into the pool of rewards. */
export interface RewardFunding {
  id: string;
  posted: boolean;
  held_nano: number;
  held_usd: string;
}

/** All numbers of the rule. An era carries the ones that it was computed by. */
export interface RewardRule {
  version: number;
  share_ppm: number;
  validators_ppm: number;
  uptime_ppm: number;
  quality_ppm: number;
  unit_micro: number;
  payer_ppm: number;
  check_units: number;
  idle_ppm: number;
  cap_ppm: number;
  ramp_days: number;
  check_failure_weight: number;
  uptime_from_ppm: number;
  quality_from_ppm: number;
  tiers: Partial<Record<TierName, TierReward>>;
  classes: Record<string, number>;
}

/** Where a node's rewards go from its next era on. */
export interface RewardTarget {
  node: string;
  to: "account" | "bond";
}

export interface RewardTargetBody {
  to: "account" | "bond";
}

export interface RoleChange {
  role: RoleName;
}

export interface SignupBody {
  email: string;
  password: string;
  name?: string;
  invite?: string | null;
}

export interface SocketControl {
  resize?: TerminalResize | null;
  eof?: boolean;
}

export interface SocketNotice {
  started?: boolean;
  eof?: boolean;
  exit_code?: number | null;
  ended?: boolean;
  error?: ErrorObject | null;
}

/** A provider that could serve the order, as far as the gateway can tell. All of it is the provider's own word but what `measured` names. */
export interface StandingOffer {
  provider: string;
  name: string | null;
  place: string | null;
  gpu: string | null;
  gpu_count: number;
  vram_gb: number | null;
  tier: string | null;
  hourly_usd: string;
  free_bond_usd: string;
  measured: string[];
}

export interface StatusBody {
  status: ChosenStatus;
  id?: string | null;
}

export interface StoredChatChange {
  metadata: Record<string, string> | null;
}

export interface StoredChatDeletion {
  id: string;
  object: "chat.completion.deleted";
  deleted: boolean;
}

export interface StoredChatList {
  object: "list";
  data: Record<string, unknown>[];
  first_id: string | null;
  last_id: string | null;
  has_more: boolean;
}

/** A page of the messages that a chat completion answers, each with an `id`. */
export interface StoredChatMessageList {
  object: "list";
  data: Record<string, unknown>[];
  first_id: string | null;
  last_id: string | null;
  has_more: boolean;
}

/** About a batch whose root the guardian made void. */
export interface StruckDecision {
  action: "make_anew" | "post_again";
}

export interface TableEntry {
  id: number;
  name: string;
}

export interface TerminalResize {
  columns: number;
  rows: number;
}

/** Whole, or one event of a stream: both have the same shape. */
export interface TextCompletion {
  id: string;
  object: "text_completion";
  created: number;
  model: string;
  choices: TextCompletionChoice[];
  usage: TokenUsage | null;
}

export interface TextCompletionChoice {
  index: number;
  text: string;
  logprobs: Record<string, unknown> | null;
  finish_reason: string | null;
}

export interface TierReward {
  weight_ppm: number;
  floor_ppm: number;
}

/** Lowest first. */
export interface TierTable {
  object: "list";
  data: TierTableRow[];
  window_days: number;
}

export interface TierTableRow {
  tier: TierName;
  nodes: number;
  weight_ppm: number;
  floor_ppm: number;
  promote: TierTermRow | null;
  keep: TierTermRow | null;
}

/** One term of the table, against what the network knows of the node. */
export interface TierTerm {
  name: "attestation" | "bond" | "checks_failed" | "checks_passed" | "completion" | "days" | "jobs" | "uptime";
  have: number;
  need: number;
  met: boolean;
  text: string;
}

export interface TierTermRow {
  days: number;
  uptime_ppm: number;
  jobs: number;
  completion_ppm: number;
  checks_passed: number;
  checks_failed: number;
  bond_micro: number;
  attested: boolean;
}

export interface TokenUsage {
  prompt_tokens: number;
  completion_tokens: number | null;
  total_tokens: number;
  cost: number | null;
}

/** The money that pays node owners for serving free credits. */
export interface TreasuryBalance {
  balance_usd: string;
  balance_nano: number;
  daily_budget_usd: string;
  daily_budget_nano: number;
  redeemed_today_usd: string;
  redeemed_today_nano: number;
}

/** The result of funding the treasury. */
export interface TreasuryPosting {
  id: string;
  posted: boolean;
  treasury: TreasuryBalance;
}

export interface TreasuryReply {
  data: TreasuryBalance;
}

/** How much bond to take out. */
export interface UnbondBody {
  usd?: string | number | null;
  nano?: number | null;
  currency?: string;
  id?: string | null;
}

/** The last year of a node; days without any record are left out. */
export interface UptimeCalendar {
  object: "list";
  data: CalendarDay[];
  node: string;
  name: string;
}

export interface UptimeCreditEntry {
  lease: string;
  order: string;
  account: string;
  percent: string;
  due_usd: string;
  credited_usd: string | null;
  credited_at: number | null;
  ended_at: number;
  reason: string | null;
}

/** What the operator put aside to credit renters whose leases were down. */
export interface UptimeFundBalance {
  balance_usd: string;
  balance_nano: number;
  daily_limit_usd: string;
  daily_limit_nano: number;
  credited_today_usd: string;
  credited_today_nano: number;
  waiting_usd: string;
  waiting_nano: number;
  waiting_leases: number;
  goal_percent: string;
}

/** The result of funding it. */
export interface UptimeFundPosting {
  id: string;
  posted: boolean;
  fund: UptimeFundBalance;
}

export interface UptimeFundReply {
  fund: UptimeFundBalance;
  data: UptimeCreditEntry[];
}

/** The jobs of one day, model or key. */
export interface UsageGroup {
  name: string;
  jobs: number;
  prompt_tokens: number;
  completion_tokens: number;
  cost_usd: string;
  cost_nano: number;
  promo_usd: string;
  promo_nano: number;
}

export interface UsageGroupList {
  object: "list";
  data: UsageGroup[];
  next: string | null;
}

export interface ValidatorEraInputs {
  operator: string;
  stake_micro: number;
  votes: number;
  due: number;
  jailed: boolean;
}

export interface ValidatorReward {
  operator: string;
  weight: number;
  micro: number;
}

/** In the newest matches that this gateway has collected signed votes of, at most 100. */
export interface ValidatorVotes {
  agreed: number;
  differed: number;
  missed: number;
}

export interface VersionInfo {
  version: string;
  api: "v1";
  link_protocol: number;
}

export interface WalletBody {
  node: string;
  wallet: string;
}

/** A transaction for the owner's own wallet to send. It registers the node as this wallet's provider. */
export interface WalletTransactionReply {
  chain_id: number;
  sender: string;
  to: string;
  data: string;
  value: string;
}

/** The gateway's own release as a Python wheel. */
export interface WheelInfo {
  version: string;
  name: string;
  url: string;
  sha256: string;
  bytes: number;
  install: string;
}

export interface WithdrawBody {
  usd?: string | number | null;
  nano?: number | null;
  currency?: string;
  id?: string | null;
  to?: string | null;
}

/** An exit of credits, which the contract has and will pay. */
export interface Withdrawal {
  id: string;
  usd: string;
  nano: number;
  ready_at: number;
  to: string;
}

export interface ZoneEntry {
  id: number;
  name: string;
  distances_ms: number[];
}
