// The schemas of /api/v1 as types. Written by: python -m tools.js_types > frontend/api-types.d.ts
declare namespace Api {
  interface AgentEvaluations {
    name: string;
    position: number;
    points: EvaluationPoint[];
  }
  interface AgentFolder {
    name: string;
    position: number;
    num_files: number;
    size_bytes: number;
    accuracy: number | null;
    serve: string;
    proposed: string;
    has_adapter: boolean;
    precision: string;
    repository: string;
  }
  interface AgentIn {
    model: number;
    name?: string;
    seed?: unknown;
    learning_rate?: unknown;
    prompt_format?: unknown;
    prompt_template?: unknown;
    chat_template_kwargs?: unknown;
    lora_rank?: unknown;
    lora_alpha?: unknown;
    thinking?: unknown;
    temperature?: unknown;
    top_p?: unknown;
    top_k?: unknown;
  }
  interface AgentOut {
    model: number;
    name: string;
    position: number;
    seed: number | null;
    learning_rate: number | null;
    prompt_format: "auto" | "chat" | "plain";
    prompt_template: string;
    chat_template_kwargs: Record<string, boolean | number | string>;
    lora_rank: number;
    lora_alpha: number;
    thinking: "auto" | "on" | "off";
    temperature: number | null;
    top_p: number | null;
    top_k: number | null;
  }
  interface AgentProgress {
    name: string;
    peers: string;
    accuracy: string;
  }
  interface AgentPromptOut {
    agent: string;
    num_tokens: number;
    text: string;
    token_ids: number[];
    pieces: TokenPiece[];
    notes: string[];
    error: string;
  }
  interface AgentReply {
    agent: string;
    text?: string;
    finish_reason?: string;
    num_tokens?: number;
    seconds?: number;
    verdict?: AskVerdict | null;
    error?: string;
  }
  interface AgentSums {
    name: string;
    rollouts: number;
    tokens: number;
    verified: number;
    verified_tokens: number;
    correct: number;
    text_differences: Record<string, number>;
  }
  interface AlertAnswer {
    source: string;
    cleared_reason: string;
    id: number;
    run: string;
    title: string;
    number: number | null;
    advice: string;
    chart: string | null;
    url: string;
    fix_url: string;
    fix: string;
    is_open: boolean;
    kind: string;
    agent: string;
    attempt: number;
    text: string;
    raised_step: number;
    raised_at: string;
    cleared_step: number | null;
    cleared_at: string | null;
  }
  interface AlertsOfRunAnswer {
    items: AlertAnswer[];
    count: number;
    next: string | null;
    num_open: number;
  }
  interface AnswerIn {
    gold?: string;
    response?: string;
  }
  interface AskAnswer {
    step: number;
    answers: AgentReply[];
  }
  interface AskBody {
    step: number;
    question: string;
    expected?: string;
    temperature?: number;
    seed?: number;
    max_new_tokens?: number | null;
  }
  interface AskVerdict {
    reward: number | null;
    reason: string;
  }
  interface Attempt {
    number: number;
    started_at: string | null;
    from_step: number | null;
    device: string;
    host: string;
    versions: Record<string, string>;
    last_step: number | null;
    ending: string;
  }
  interface AttemptEndAnswer {
    at: string;
    attempt: number;
    level: string;
    text: string;
  }
  interface AuditAnswer {
    id: number;
    address: string;
    object_id: string;
    name: string;
    before: Record<string, unknown>;
    after: Record<string, unknown>;
    at: string;
    actor: string;
    via: string;
    action: string;
    kind: string;
    project_id: number | null;
  }
  interface AuditFiltersParameters {
    actor?: string;
    kind?: string;
    action?: string;
    q?: string;
    project?: string;
    since?: string;
    until?: string;
  }
  interface BandAnswer {
    metric: string;
    agent: string;
    source: string;
    grid: number;
    last: number[];
    low?: number[];
    high?: number[];
    seeds: number[];
  }
  interface BandStep {
    m: number | null;
    low: number;
    high: number;
  }
  interface BenchmarkCopyIn {
    name?: string;
    held_out_fraction?: number | null;
    extraction?: string | null;
    ready_prompt?: string | null;
    verifier?: string | null;
    tolerance?: number | null;
    prompt_template?: string | null;
    system_prompt?: string | null;
    reward_function?: string | null;
  }
  interface BenchmarkEvaluations {
    name: string;
    is_own: boolean;
    score_word: string;
    agents: AgentEvaluations[];
  }
  interface BenchmarkIn {
    name: string;
    question_field?: string | null;
    answer_field?: string | null;
    answer_extraction?: string | null;
    subject_field?: string | null;
    difficulty_field?: string | null;
    id_field?: string | null;
    verifier?: string | null;
    tolerance?: string | null;
    ready_prompt?: string | null;
    prompt_template?: string | null;
    system_prompt?: string | null;
    held_out_fraction?: string | null;
    extraction?: string | null;
    reward_function?: string | null;
    judge?: string | null;
  }
  interface BenchmarkOut {
    system_prompt: string;
    source: string;
    questions_sha: string;
    id: number;
    name: string;
    audit: string;
    edit_of: number | null;
    reward_function_id: number | null;
    judge_id: number | null;
    facts: Record<string, unknown>;
    created_at: string;
    held_out_fraction: number;
    question_field: string;
    answer_field: string;
    prompt_template: string;
    verifier: string;
    tolerance: number | null;
    extraction: string;
    num_train: number;
    num_held_out: number;
  }
  interface BoardAnswer {
    board: string;
    address: string;
    metric: string;
    formula: string;
    intervals: string;
    baseline: string | null;
    columns: BoardColumnAnswer[];
    rows: BoardRowAnswer[];
    starts: StartAnswer[];
    reported: Record<string, unknown> | null;
  }
  interface BoardColumnAnswer {
    title: string;
    benchmarks: string[];
    measured_by: string;
  }
  interface BoardHead {
    name: string;
    query: string;
    url: string;
    benchmarks: string[];
    num_runs: number;
    is_generated: boolean;
  }
  interface BoardLineAnswer {
    agent: string | null;
    start: number | null;
    scores: Record<string, ScoreAnswer>;
  }
  interface BoardQueryParameters {
    metric?: string;
    baseline?: string;
    show?: string;
    on?: string[];
    algorithm?: string[];
    column?: string[];
    sort?: string;
    cost?: string;
    x?: string;
    reported?: string;
    sweep?: string[];
    group?: string[];
    benchmark?: string[];
  }
  interface BoardRowAnswer {
    id: string;
    algorithm: string;
    label: string;
    told_apart_by: Record<string, unknown>;
    seeds_launched: number;
    without_a_score: unknown[];
    lines: BoardLineAnswer[];
    rollouts: number | null;
    tokens: number | null;
    training_hours: number | null;
    gained_per_1000_rollouts: number | null;
    facts: Record<string, unknown>;
    settings: Record<string, unknown>;
    runs: Record<string, unknown>[];
  }
  interface BoundsAnswer {
    first: number | null;
    last: number | null;
    delta_step: number | null;
  }
  interface BucketsAnswer {
    run: string;
    seq: number;
    first: number;
    last: number;
    width: number;
    lines: LineAnswer[];
    bands: BandAnswer[];
    grids: number[][];
    x?: PositionsAnswer;
  }
  interface BuiltInIn {
    name?: string;
    held_out_fraction?: number | null;
    extraction?: string | null;
    ready_prompt?: string | null;
    built_in: string;
    location?: string;
  }
  interface BuiltInOut {
    key: string;
    name: string;
    about: string;
    dataset: string;
    config: string;
    split: string;
    licence: string;
    verifier: string;
    mapping: Record<string, string>;
    ready_prompt: string;
    prompt_template: string;
    system_prompt: string;
  }
  interface CheckpointSummary {
    step: number;
    size_bytes: number;
    num_files: number;
    agents: AgentFolder[];
    checked: string;
    damage: string;
    accuracy: number | null;
    is_newest: boolean;
    is_best: boolean;
  }
  interface CheckpointsAnswer {
    is_here: boolean;
    host: string;
    num_removed: number;
    removal: string;
    score_word: string;
    items: CheckpointSummary[];
    count: number;
    next: null;
  }
  interface ChoiceIn {
    choice: "default" | "on" | "off";
  }
  interface CollaborationAnswer {
    ended: boolean;
    attempt: number;
    steps: number[];
    timeline: TimelineOfPairs;
    so_far: AgentProgress[];
    score_word: string;
  }
  interface ComparedLine {
    run: number;
    agent: string;
    x: number[];
    y: number[];
  }
  interface ComparedLines {
    metric: string;
    x: string;
    lines: ComparedLine[];
  }
  interface ComparedRow {
    run: string;
    agent: string | null;
    best: number | null;
    best_step: number | null;
    last: number | null;
    last_step: number | null;
    best_difference: number | null;
    last_difference: number | null;
  }
  interface ComparedRun {
    id: string;
    name: string;
    algorithm: string;
    seed: number;
  }
  interface ComparisonAnswer {
    metric: string;
    metrics: string[];
    baseline: string;
    runs: ComparedRun[];
    rows: ComparedRow[];
    differing: SettingAnswer[];
  }
  interface ComparisonQueryParameters {
    runs?: string[];
    baseline?: string;
    metric?: string;
    x?: string;
    best?: string;
  }
  interface ConfigAnswer {
    runs: string[];
    lines: SettingAnswer[];
  }
  interface Confirmed {
    confirm?: string[];
  }
  interface ContributionAnswer {
    seq: number;
    attempt: number;
    step: number;
    agent: string;
    source: string;
    prompt_id: string;
    sample: number;
    num_tokens: number;
    advantage: number | null;
    sequence_ratio: number | null;
    start_ratio: number | null;
    clipped_ratio: number | null;
    clip_side: string;
    omega: number | null;
    weight: number | null;
    mini_batch: number | null;
    drop_reason: string | null;
    reward: number | null;
    source_num_tokens: number | null;
    alpha: number | null;
    capability: number | null;
    source_capability: number | null;
    age: number | null;
    importance: number | null;
  }
  interface ContributionQuery {
    limit?: number;
    cursor?: string;
  }
  interface ContributionSummary {
    learner: string;
    advantage: number | null;
    sequence_ratio: number | null;
    clip_side: string;
    weight: number | null;
    drop_reason: string | null;
  }
  interface ContributionsAnswer {
    items: ContributionAnswer[];
    count: number;
    next: string | null;
    run: string;
    step: number;
  }
  interface Cost {
    runs: number;
    rollouts: number;
    extra_rollouts: number;
    max_tokens: number;
    device_seconds: number | null;
    disk_bytes: number | null;
    basis: string;
    basis_runs: number;
    memory: string;
    void_settings: string[];
  }
  interface DeliveryAnswer {
    id: number;
    reason: string;
    channel: string;
    target: string;
    subject: string;
    state: string;
    tries: number;
    created_at: string;
    sent_at: string | null;
  }
  interface DemoAnswer {
    activity: string;
    percent: number | null;
    failure: string;
    sweep: string | null;
  }
  interface DiskUse {
    num_rows: number;
    rows_bytes: number;
    files_bytes: number | null;
  }
  interface DrainOrder {
    name: string;
    drain: "no" | "finish" | "now";
    why?: string;
  }
  interface EvaluationPoint {
    step: number;
    value: number | null;
    correct: number;
    asked: number;
    unscorable: number;
    num_samples: number;
    estimates: Record<string, number>;
    slices: Record<string, number[]>;
    questions: string;
    verifier: string;
  }
  interface EvaluationsAnswer {
    benchmarks: BenchmarkEvaluations[];
    harness: HarnessLine[];
  }
  interface EventAnswer {
    seq: number;
    attempt: number;
    type: string;
    step: number | null;
    agent: string;
    source: string;
    time: number;
    payload: Record<string, unknown>;
  }
  interface EventsAnswer {
    op: string;
    run: string;
    prev: number;
    seq: number;
    events: EventAnswer[];
    status: StatusFrame;
    last_seq: number;
  }
  interface ExpiryPreview {
    file_runs: number;
    file_bytes: number;
    archived_runs: number;
    archived_bytes: number;
  }
  interface ExportColumn {
    name: string;
    kind: string;
    help: string;
  }
  interface ExportTable {
    name: string;
    help: string;
    columns: ExportColumn[];
  }
  interface ExportTables {
    items: ExportTable[];
  }
  interface Extension {
    step: number;
    steps: number;
  }
  interface FetchIn {
    name?: string;
    held_out_fraction?: number | null;
    extraction?: string | null;
    ready_prompt?: string | null;
    verifier?: string | null;
    tolerance?: number | null;
    prompt_template?: string | null;
    system_prompt?: string | null;
    reward_function?: string | null;
    kind?: string;
    location: string;
    revision?: string;
    question_field?: string | null;
    answer_field?: string | null;
    answer_extraction?: string | null;
    subject_field?: string | null;
    difficulty_field?: string | null;
    id_field?: string | null;
    judge?: string | null;
  }
  interface FunctionIn {
    name?: string;
    source?: string;
  }
  interface FunctionOut {
    id: number;
    name: string;
    version: string;
    sha256: string;
    created_at: string;
    text: string;
    uses_network: boolean;
  }
  interface GatePoint {
    s: number;
    positive: number;
    negative: number;
  }
  interface GroupCopyIn {
    name: string;
    agents?: Record<string, Record<string, unknown>>;
  }
  interface GroupIn {
    name: string;
    agents: AgentIn[];
  }
  interface GroupOut {
    id: number;
    name: string;
    edit_of: number | null;
    agents: AgentOut[];
    created_at: string;
  }
  interface HarnessLine {
    run: string;
    run_name: string;
    source_run: string;
    source_name: string;
    step: number | null;
    agent: string;
    position: number;
    harness: string;
    version: string;
    task: string;
    task_version: string;
    is_group: boolean;
    benchmark: string;
    num_fewshot: number | null;
    num_questions: number | null;
    num_available: number | null;
    has_chat_template: boolean;
    metric: string;
    filter: string;
    value: number | null;
    stderr: number | null;
    higher_is_better: boolean | null;
  }
  interface HistoryAnswer {
    run: string;
    seq: number;
    events: EventAnswer[];
    ends: AttemptEndAnswer[];
  }
  interface HostAnswer {
    name: string;
    last_seen: string | null;
    clock_offset_s: number | null;
    schema: string;
    versions: Record<string, string>;
    devices: Record<string, unknown>[];
    drain: string;
    drain_reason: string;
  }
  interface HostName {
    name: string;
  }
  interface HubTokenAnswer {
    is_set: boolean;
    works: boolean | null;
    hub_name: string | null;
    problem: string | null;
    set_at: string | null;
    checked_at: string | null;
    last_used_at: string | null;
  }
  interface HubTokenIn {
    token: string;
  }
  interface HypotheticalPair {
    learner: number;
    source: number;
    recorded: OutcomeAnswer;
    hypothetical: OutcomeAnswer;
  }
  interface HypotheticalSettings {
    delta?: number | null;
    delta_step?: number | null;
    alpha?: number | null;
    cross_gate?: "hacpo" | "signed" | "gamma" | null;
    cross_clip_gradient?: "zero" | "keep" | "sided" | null;
    capability_window?: number | null;
    ratio_min?: number | null;
    ratio_max?: number | null;
    floor?: number | null;
  }
  interface ImportAnswer {
    id: string;
    url: string;
    name: string;
    notes: string[];
  }
  interface Importance {
    trials: number;
    shares: Record<string, ImportanceShare>;
  }
  interface ImportanceShare {
    share: number;
    low: number;
    high: number;
  }
  interface InfluentialAnswer {
    step: number | null;
    items: InfluentialRollout[];
  }
  interface InfluentialRollout {
    seq: number;
    learner: string;
    source: string;
    prompt_id: string;
    step: number;
    weight: number;
    reward: number | null;
    prompt: string;
    parts: TextPart[];
    count: number;
    own: OwnAnswer | null;
  }
  interface IntervalAnswer {
    mean: number;
    half_width: number | null;
    seeds: number;
  }
  interface InvitationAnswer {
    id: number;
    role: string;
    comment: string;
    expires_at: string;
  }
  interface InvitationIn {
    role: string;
    comment?: string;
  }
  interface JudgeIn {
    settings?: Record<string, unknown>;
    key?: string;
    name?: string;
  }
  interface JudgeOut {
    id: number;
    name: string;
    version: string;
    sha256: string;
    created_at: string;
    settings: Record<string, unknown>;
    has_key: boolean;
    key_set_at: string | null;
  }
  interface JudgeQuestionsIn {
    benchmark?: number | null;
  }
  interface JudgeSettingsIn {
    settings?: Record<string, unknown>;
    key?: string;
  }
  interface Labels {
    tags: string[];
    notes: string;
  }
  interface LineAnswer {
    metric: string;
    agent: string;
    source: string;
    grid: number;
    last: number[];
    low?: number[];
    high?: number[];
  }
  interface ListQuery {
    limit?: number;
    cursor?: string;
  }
  interface LogLineAnswer {
    seq: number;
    attempt: number;
    at: string;
    level: string;
    text: string;
  }
  interface MeAnswer {
    id: number;
    name: string;
    is_staff: boolean;
    is_linked: boolean;
    token: TokenAnswer | null;
  }
  interface MemberAnswer {
    id: number;
    user: MemberName;
    role: string;
  }
  interface MemberName {
    id: number;
    name: string;
  }
  interface MetricAnswer {
    metric: string;
    is_pair: boolean;
  }
  interface MirrorChange {
    options?: Record<string, unknown> | null;
    secret?: string;
    sends?: "new" | "chosen" | null;
    rollouts?: number | null;
    rollout_interval?: number | null;
    is_enabled?: boolean | null;
  }
  interface MirrorIn {
    kind: string;
    name?: string;
    options?: Record<string, unknown>;
    secret?: string;
    sends?: "new" | "chosen";
    rollouts?: number;
    rollout_interval?: number;
  }
  interface MirrorState {
    id: number;
    name: string;
    kind: string;
    label: string;
    options: Record<string, string>;
    takes_secret: boolean;
    has_secret: boolean;
    sends: string;
    rollouts: number;
    rollout_interval: number;
    is_enabled: boolean;
    folder: string;
    num_sent: number;
    num_failing: number;
    problem: string;
  }
  interface MirrorStates {
    items: MirrorState[];
  }
  interface ModelIn {
    location: string;
    kind?: string;
    revision?: string;
    name?: string;
  }
  interface ModelOut {
    revision: string;
    architecture: string;
    tokenizer_hash: string;
    id: number;
    name: string;
    facts: Record<string, unknown>;
    created_at: string;
    kind: string;
    location: string;
    num_parameters: number | null;
    vocab_size: number | null;
    has_chat_template: boolean;
    context_length: number | null;
  }
  interface NameOrder {
    name?: string;
  }
  interface Named {
    name: string;
  }
  interface NewInvitationAnswer {
    id: number;
    role: string;
    comment: string;
    expires_at: string;
    link: string;
  }
  interface NewTokenAnswer {
    id: number;
    scopes: string[];
    state: string;
    name: string;
    hint: string;
    created_at: string;
    expires_at: string;
    last_used_at: string | null;
    revoked_at: string | null;
    token: string;
  }
  interface NotificationValues {
    email_enabled: boolean;
    email: string;
    webhook_enabled: boolean;
    webhook_url: string;
    on_alert: boolean;
    on_cleared: boolean;
    on_failed: boolean;
    on_lost: boolean;
    on_completed: boolean;
  }
  interface OutcomeAnswer {
    rows: number;
    evaluated: number;
    lower: number;
    upper: number;
    used: number;
    unknown: number;
    weight: number;
    positive: number[];
    negative: number[];
    omega: number | null;
    omega_range: number[] | null;
    share: number | null;
  }
  interface OutputAnswer {
    lines: string[] | null;
  }
  interface OverlaidLine {
    metric: string;
    group: number;
    agent: string;
    runs: number;
    x: number[];
    y: number[];
    low?: number[];
    high?: number[];
  }
  interface OverlaidLines {
    x: string;
    lines: OverlaidLine[];
  }
  interface OwnAnswer {
    parts: TextPart[];
    reward: number | null;
    count: number;
    of: number;
  }
  interface PageOfAlertAnswer {
    items: AlertAnswer[];
    count: number;
    next: string | null;
  }
  interface PageOfAuditAnswer {
    items: AuditAnswer[];
    count: number;
    next: string | null;
  }
  interface PageOfBenchmarkOut {
    items: BenchmarkOut[];
    count: number;
    next: string | null;
  }
  interface PageOfBoardHead {
    items: BoardHead[];
    count: number;
    next: string | null;
  }
  interface PageOfDeliveryAnswer {
    items: DeliveryAnswer[];
    count: number;
    next: string | null;
  }
  interface PageOfFunctionOut {
    items: FunctionOut[];
    count: number;
    next: string | null;
  }
  interface PageOfGroupOut {
    items: GroupOut[];
    count: number;
    next: string | null;
  }
  interface PageOfHostAnswer {
    items: HostAnswer[];
    count: number;
    next: string | null;
  }
  interface PageOfJudgeOut {
    items: JudgeOut[];
    count: number;
    next: string | null;
  }
  interface PageOfLogLineAnswer {
    items: LogLineAnswer[];
    count: number;
    next: string | null;
  }
  interface PageOfModelOut {
    items: ModelOut[];
    count: number;
    next: string | null;
  }
  interface PageOfPersonAnswer {
    items: PersonAnswer[];
    count: number;
    next: string | null;
  }
  interface PageOfProjectAnswer {
    items: ProjectAnswer[];
    count: number;
    next: string | null;
  }
  interface PageOfReportSummary {
    items: ReportSummary[];
    count: number;
    next: string | null;
  }
  interface PageOfRunRow {
    items: RunRow[];
    count: number;
    next: string | null;
  }
  interface PageOfRunViewAnswer {
    items: RunViewAnswer[];
    count: number;
    next: string | null;
  }
  interface PageOfSweepRow {
    items: SweepRow[];
    count: number;
    next: string | null;
  }
  interface PageOfTokenAnswer {
    items: TokenAnswer[];
    count: number;
    next: string | null;
  }
  interface PairAnswer {
    agents: string[];
    kind: string;
    drift: number | null;
    warnings: string[];
    facts: Record<string, unknown> | null;
  }
  interface PairLine {
    steps: number[];
    last: number[];
    low?: number[];
    high?: number[];
  }
  interface PairSumsAnswer {
    learner: number;
    source: number;
    rows: number;
    tokens: number;
    used: number[];
    zero: number[];
    clipped: number[];
    other: number[];
    dropped: Record<string, number[]>;
    weight: number[];
    lost: number[];
    evaluated: number[];
    lower: number[];
    upper: number[];
    positives_are_correct: boolean;
    prompts: number;
    rescue: number[];
    avoided: number[];
    omega: number | null;
    omega_low: number | null;
    capability: number | null;
    source_capability: number | null;
    clamped: boolean;
    not_drawn: number;
  }
  interface PairTimeline {
    learner: number;
    source: number;
    omega: PairLine | null;
    clamped: number[];
    quarantined: number[];
    alignment: PairLine | null;
    clips: Record<string, PairLine | null>;
  }
  interface PanelsAnswer {
    panels: string;
    metrics: MetricAnswer[];
  }
  interface PanelsBody {
    panels: string;
  }
  interface PersonAnswer {
    id: number;
    name: string;
    is_active: boolean;
    is_staff: boolean;
    is_linked: boolean;
  }
  interface Place {
    place?: number | null;
    priority?: number | null;
  }
  interface PlacedRun {
    id: string;
    name: string;
    url: string;
    algorithm: string;
    variant: string;
    seed: number;
    state: string;
    desired_state: string;
    reason: string;
    attempt: number;
    interruptions: number;
    priority: number;
    retry_of: string | null;
    cloned_from: string | null;
    start_step: number;
    step: number;
    total_steps: number;
    progress: Record<string, unknown>;
    score: number | null;
    score_word: string;
    sweep: number | null;
    group: number | null;
    benchmark: number | null;
    worker_host: string;
    tags: string[];
    archived_at: string | null;
    created_at: string;
    started_at: string | null;
    finished_at: string | null;
    place_in_queue: number | null;
  }
  interface PositionsAnswer {
    steps: number[];
    values: (number | null)[];
  }
  interface PresetAnswer {
    name: string;
    label: string;
    settings: Record<string, Record<string, unknown>>;
    confirm: string[];
    memory: PresetMemoryAnswer | null;
  }
  interface PresetMemoryAnswer {
    text: string;
    fits: boolean;
  }
  interface PresetsAnswer {
    items: PresetAnswer[];
  }
  interface ProjectAnswer {
    id: number;
    name: string;
    role: string | null;
  }
  interface ProjectDetailAnswer {
    id: number;
    name: string;
    role: string | null;
    members: MemberAnswer[];
    invitations?: InvitationAnswer[];
  }
  interface ProjectUse {
    running: number;
    waiting: number;
    gpu_hours: number;
    disk_gib: number;
  }
  interface Promotion {
    step: number;
    agent: number;
    name?: string;
  }
  interface PromptPreviewOut {
    question: QuestionRow;
    prompts: AgentPromptOut[];
  }
  interface PromptQuestionQuery {
    benchmark?: number | null;
    file?: string;
    line?: number;
  }
  interface Push {
    step: number;
    agent: number;
    repo: string;
    content?: "merged" | "adapter" | "all";
    is_private?: boolean;
  }
  interface QuestionListQuery {
    file?: string;
    start?: number;
    q?: string;
    subject?: string;
    difficulty?: string;
  }
  interface QuestionPageOut {
    items: QuestionRow[];
    next_start: number | null;
  }
  interface QuestionRow {
    line: number;
    id: string;
    question: string;
    answer: string;
    subject: string;
    difficulty: string;
    is_held_out: boolean;
  }
  interface QueuedAnswer {
    queued: number;
  }
  interface QuotaAnswer {
    use: ProjectUse;
    limits: QuotaLimits;
  }
  interface QuotaIn {
    running?: number | null;
    waiting?: number | null;
    gpu_hours?: number | null;
    disk_gib?: number | null;
  }
  interface QuotaLimits {
    running: number | null;
    waiting: number | null;
    gpu_hours: number | null;
    disk_gib: number | null;
  }
  interface RatiosAnswer {
    learner: number;
    steps: number[];
    num_steps: number;
    edges: number[];
    band: BandStep[];
    gate: GatePoint[];
    sources: SourceRatios[];
  }
  interface ReadyPromptOut {
    key: string;
    name: string;
    prompt_template: string;
    system_prompt: string;
    verifiers: string[];
  }
  interface RecordedCheck {
    rows: number;
    weights: number;
    sides: number;
    worst: number;
    strengths: number;
    capabilities: number;
    advantage: number;
  }
  interface RecordedMetrics {
    metrics: MetricAnswer[];
  }
  interface RecordedTurn {
    role: string;
    text: string;
    is_failed: boolean;
  }
  interface ReportChange {
    title: string;
    text: string;
    version: number;
  }
  interface ReportIn {
    title: string;
    text?: string;
  }
  interface ReportState {
    id: number;
    project: number;
    title: string;
    version: number;
    created_at: string;
    changed_at: string;
    changed_by: string;
    text: string;
  }
  interface ReportSummary {
    id: number;
    project: number;
    title: string;
    version: number;
    created_at: string;
    changed_at: string;
    changed_by: string;
  }
  interface RequestAnswer {
    algorithm?: Record<string, unknown>;
    rewards?: Record<string, unknown>;
    rollout?: Record<string, unknown>;
    training?: Record<string, unknown>;
    evaluation?: Record<string, unknown>;
    checkpoint?: Record<string, unknown>;
    compute?: Record<string, unknown>;
    telemetry?: Record<string, unknown>;
    confirm?: string[];
    agents?: Record<string, Record<string, unknown>>;
    name?: string;
    group?: number | null;
    benchmark?: number | null;
    seed?: number;
    cloned_from?: string;
    draft?: boolean;
    data?: Record<string, unknown>;
  }
  interface RetentionDays {
    checkpoint_days?: number | null;
    archived_days?: number | null;
  }
  interface RetentionIn {
    checkpoint_days?: number | null;
    archived_days?: number | null;
  }
  interface RetryOrder {
    state?: "failed" | "stopped";
  }
  interface RoleIn {
    role: string;
  }
  interface RolloutFilterParameters {
    step?: string;
    prompt?: string;
    set?: string;
    agent?: string;
    source?: string;
    reward?: string;
    min_tokens?: string;
    max_tokens?: string;
    q?: string;
    learner?: string;
    sign?: string;
    clip?: string;
    prompt_kind?: string;
    min_advantage?: string;
    max_advantage?: string;
    shared?: string;
    sort?: string;
    after?: string;
    before?: string;
  }
  interface RolloutHit {
    step: number;
    seq: number;
    attempt: number;
    prompt_id: string;
    sample: number;
    agent: string;
    reward: number | null;
    num_tokens: number | null;
    taught: ContributionSummary | null;
    rewards: Record<string, number> | null;
  }
  interface RolloutOrNone {
    rollout: RolloutTextAnswer | null;
  }
  interface RolloutTextAnswer {
    step: number;
    agent: string;
    prompt_id: string;
    sample: number;
    prompt: string;
    completion: string;
    answer: string;
    reward: number | null;
    turns: RecordedTurn[];
    length?: number;
    shown?: number;
  }
  interface RolloutsAnswer {
    items: RolloutHit[];
    next: string | null;
    previous: string | null;
    stopped_at: number | null;
    sorted_from: number | null;
  }
  interface RuleAnswer {
    kind: string;
    title: string;
    help: string;
    scope: string;
    metric: string;
    chart: string;
    source: string;
    advice: string;
    is_low: boolean;
    raise_at: number;
    raise_after: number;
    clear_at: number;
    clear_after: number;
  }
  interface RulesAnswer {
    rules: RuleAnswer[];
  }
  interface RunAnswer {
    id: string;
    name: string;
    url: string;
    algorithm: string;
    variant: string;
    seed: number;
    state: string;
    desired_state: string;
    reason: string;
    attempt: number;
    interruptions: number;
    priority: number;
    retry_of: string | null;
    cloned_from: string | null;
    start_step: number;
    step: number;
    total_steps: number;
    progress: Record<string, unknown>;
    score: number | null;
    score_word: string;
    sweep: number | null;
    group: number | null;
    benchmark: number | null;
    worker_host: string;
    tags: string[];
    archived_at: string | null;
    created_at: string;
    started_at: string | null;
    finished_at: string | null;
    place_in_queue: number | null;
    notes: string;
    origin: Record<string, unknown>;
    network_functions: string[];
    learned_nothing: string;
    spec: Record<string, unknown>;
    last_seq: number;
    status_changes: StatusChangeAnswer[];
  }
  interface RunMirrorState {
    id: number;
    name: string;
    kind: string;
    label: string;
    is_enabled: boolean;
    choice: string;
    is_sent: boolean;
    is_done: boolean;
    seq: number;
    step: number;
    url: string;
    problem: string;
    sent_at: string | null;
  }
  interface RunMirrorStates {
    items: RunMirrorState[];
  }
  interface RunRow {
    id: string;
    name: string;
    url: string;
    algorithm: string;
    variant: string;
    seed: number;
    state: string;
    desired_state: string;
    reason: string;
    attempt: number;
    interruptions: number;
    priority: number;
    retry_of: string | null;
    cloned_from: string | null;
    start_step: number;
    step: number;
    total_steps: number;
    progress: Record<string, unknown>;
    score: number | null;
    score_word: string;
    sweep: number | null;
    group: number | null;
    benchmark: number | null;
    worker_host: string;
    tags: string[];
    archived_at: string | null;
    created_at: string;
    started_at: string | null;
    finished_at: string | null;
  }
  interface RunSeriesAnswer {
    run: string;
    last_seq: number;
    series: SeriesAnswer[];
  }
  interface RunViewAnswer {
    id: number;
    name: string;
    query: string;
    owner: string;
    project: number;
  }
  interface RunViewBody {
    name: string;
    query: string;
  }
  interface ScoreAnswer {
    score: IntervalAnswer | null;
    by_seed: Record<string, number>;
    mark: string | null;
    difference: IntervalAnswer | null;
    verdict: string | null;
  }
  interface SearchAnswer {
    found: SearchResult[];
  }
  interface SearchResult {
    kind: string;
    name: string;
    url: string;
  }
  interface SeedsOrder {
    seeds?: number[];
  }
  interface SentenceAnswer {
    kind: string;
    text: string;
    learner?: string;
    source?: string;
    prompt_kind?: string;
  }
  interface SeriesAnswer {
    metric: string;
    agent: string;
    source: string;
    steps: number[];
    values: (number | null)[];
  }
  interface SettingAnswer {
    path: string;
    values: unknown[];
    is_there: boolean[];
    differs: boolean;
  }
  interface SourceIn {
    source?: string;
  }
  interface SourceRatios {
    learner: number;
    source: number;
    taught: number[][];
    lost: number[][];
    evaluated: number[];
    lower: number[];
    upper: number[];
    unused: number[];
    beyond: number[];
    positives_are_correct: boolean;
    trap: string;
  }
  interface StartAnswer {
    agents: string[];
    seeds: number[];
    lines: BoardLineAnswer[];
  }
  interface StatusChangeAnswer {
    from_state: string;
    to_state: string;
    attempt: number;
    reason: string;
    at: string;
  }
  interface StatusFrame {
    op: string;
    run: string;
    state: string;
    desired_state: string;
    step: number;
    total_steps: number;
    attempt: number;
    progress: Record<string, unknown>;
    reason: string;
  }
  interface StepAnswer {
    step: number;
    agents: AgentSums[];
    pairs: PairSumsAnswer[];
    sentences: SentenceAnswer[];
  }
  interface StepsAnswer {
    ended: boolean;
    attempt: number;
    steps: number[];
  }
  interface SweepAnswer {
    id: number;
    name: string;
    url: string;
    created_at: string;
    is_draft: boolean;
    request: Record<string, unknown>;
    search: SweepSearchAnswer | null;
    is_finished: boolean;
    progress: SweepProgress;
    seeds: number[];
    variants: VariantAnswer[];
    runs: RunRow[];
  }
  interface SweepChange {
    id: number;
    name: string;
    url: string;
    created_at: string;
    is_draft: boolean;
    changed: string[];
    progress: SweepProgress;
  }
  interface SweepHead {
    id: number;
    name: string;
    url: string;
    created_at: string;
    is_draft: boolean;
  }
  interface SweepProgress {
    runs: number;
    counts: Record<string, number>;
    steps: number;
    total_steps: number;
    eta_s: number | null;
    is_finished: boolean;
  }
  interface SweepRequest {
    algorithm?: Record<string, unknown>;
    rewards?: Record<string, unknown>;
    rollout?: Record<string, unknown>;
    training?: Record<string, unknown>;
    evaluation?: Record<string, unknown>;
    checkpoint?: Record<string, unknown>;
    compute?: Record<string, unknown>;
    telemetry?: Record<string, unknown>;
    confirm?: string[];
    agents?: Record<string, Record<string, unknown>>;
    name?: string;
    group?: number;
    benchmark?: number;
    algorithms?: string[];
    ablations?: string[];
    seeds?: number[];
    grid?: Record<string, unknown[]>;
    search?: Record<string, unknown>;
  }
  interface SweepRow {
    id: number;
    name: string;
    url: string;
    created_at: string;
    is_draft: boolean;
    request: Record<string, unknown>;
  }
  interface SweepSearchAnswer {
    state: string;
    reason: string;
    best: number | null;
    counts: Record<string, number>;
    importance: Importance | null;
    trials: TrialAnswer[];
  }
  interface SystemAnswer {
    buckets: TimeBucket[];
    attempts: Attempt[];
  }
  interface TextPart {
    text: string;
    differs: boolean;
  }
  interface TimeBucket {
    first: number;
    last: number;
    seconds: number;
    phase_s: Record<string, number>;
    tokens: number;
    rollouts: number;
    resident_bytes: number | null;
    device_peak_bytes: number | null;
  }
  interface TimelineAnswer {
    items: TimelineEntry[];
    next: number | null;
  }
  interface TimelineEntry {
    at: number;
    order: number;
    kind: string;
    what: string;
    detail: string;
    attempt: number | null;
    step: number | null;
    state: string;
    agent: string;
    level: string;
  }
  interface TimelineOfPairs {
    first: number;
    last: number;
    width: number;
    capability: (PairLine | null)[];
    pairs: PairTimeline[];
  }
  interface TokenAnswer {
    id: number;
    scopes: string[];
    state: string;
    name: string;
    hint: string;
    created_at: string;
    expires_at: string;
    last_used_at: string | null;
    revoked_at: string | null;
  }
  interface TokenIn {
    name: string;
    scopes?: string[];
    days?: number;
  }
  interface TokenPiece {
    text: string;
    is_special: boolean;
  }
  interface TrialAnswer {
    number: number;
    state: string;
    parameters: Record<string, unknown>;
    value: number | null;
    pruned_step: number | null;
    reason: string;
    run: string | null;
  }
  interface TriedQuestion {
    question: string | null;
    answer: string | null;
    correct: TriedReward;
    none: TriedReward;
  }
  interface TriedReward {
    reward: number | null;
    reason: string;
    seconds: number;
    parts?: Record<string, number>;
    cost?: number;
    version?: string;
    sandbox?: string;
  }
  interface TryIn {
    question?: string;
    gold?: string;
    response?: string;
  }
  interface Upload {
    key: string;
    step: number;
    agent: string;
    repo: string;
    content: string;
    is_private: boolean;
    phase: string;
    done: number;
    total: number;
    error: string;
    url: string;
    is_running: boolean;
  }
  interface UploadsAnswer {
    items: Upload[];
  }
  interface VariantAnswer {
    label: string;
    runs: (string | null)[];
  }
  interface VerdictOut {
    reward: number | null;
    reason: string;
    extracted: string | null;
    seconds: number;
  }
  interface WhatIfAnswer {
    nothing: string;
    steps: number;
    pairs: HypotheticalPair[];
    agents?: string[];
    first?: number | null;
    last?: number | null;
    is_thinned?: boolean;
    rows?: number;
    bounds?: BoundsAnswer[];
    cautions?: string[];
    check?: RecordedCheck | null;
    clone?: string;
    elapsed_ms?: number;
  }
  interface WholeRunAnswer {
    done: number;
    of: number;
    agents: AgentSums[];
    pairs: PairSumsAnswer[];
  }
  interface Why {
    why?: string;
  }
}
