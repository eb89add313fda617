-- Read models: what the log says, arranged for questions. Everything here can be thrown away and folded again.
--
-- Text of foreign origin (argv, paths, output, labels, holder) is canonical JSON text: a column of type text cannot hold
-- U+0000, JSON escapes it. No column holds a wall clock: times are those of the events. Lists are in the order of
-- created_position, which never changes.

SET LOCAL ROLE leasehold_project;

CREATE TABLE views.runs (
    tenant     uuid   NOT NULL,
    run_id     uuid   NOT NULL,                  -- chosen by the client: unique within its tenant only
    phase      text   NOT NULL CHECK (phase IN ('open', 'closing', 'closed')),
    last_epoch bigint NOT NULL,
    position   bigint NOT NULL,                  -- of the last event that changed the row, here and below
    PRIMARY KEY (tenant, run_id)
);
CREATE INDEX runs_closing ON views.runs (position) WHERE phase = 'closing';

CREATE TABLE views.leases (
    lease_id           uuid        PRIMARY KEY,
    tenant             uuid        NOT NULL,
    run_id             uuid        NOT NULL,
    epoch              bigint      NOT NULL,
    state              text        NOT NULL CHECK (state IN ('live', 'released', 'expired', 'revoked', 'fenced')),
    holder             text,                     -- JSON string
    network            boolean     NOT NULL,
    limits             text        NOT NULL,     -- JSON object
    tools              text        NOT NULL,     -- JSON list
    labels             text        NOT NULL,     -- JSON object
    environment_cap_ms bigint      NOT NULL,
    acquired_at        timestamptz NOT NULL,
    expires_at         timestamptz NOT NULL,
    ended_at           timestamptz,
    created_position   bigint      NOT NULL,
    position           bigint      NOT NULL
);
CREATE INDEX leases_by_tenant ON views.leases (tenant, created_position);
CREATE INDEX leases_by_run ON views.leases (run_id, created_position);
CREATE INDEX leases_live ON views.leases (expires_at) WHERE state = 'live';

CREATE TABLE views.environments (
    environment_id    uuid        PRIMARY KEY,
    tenant            uuid        NOT NULL,
    run_id            uuid        NOT NULL,
    lease_id          uuid        NOT NULL,
    epoch             bigint      NOT NULL,
    node_id           uuid        NOT NULL,
    mechanism         text        NOT NULL,
    image_digest      text        NOT NULL,
    limits            text        NOT NULL,      -- JSON object
    policy_digest     text,                      -- JSON string
    state             text        NOT NULL CHECK (state IN ('requested', 'ready', 'tearing_down', 'failed', 'destroyed')),
    teardown_cause    text,
    teardown_attempts bigint      NOT NULL,
    reason_code       text,                      -- JSON string
    adopted_by        uuid,
    created_at        timestamptz NOT NULL,
    expires_at        timestamptz NOT NULL,
    ready_at          timestamptz,
    destroyed_at      timestamptz,
    created_position  bigint      NOT NULL,
    position          bigint      NOT NULL
);
CREATE INDEX environments_by_lease ON views.environments (lease_id, created_position);
CREATE INDEX environments_open ON views.environments (created_position) WHERE state <> 'destroyed';

CREATE TABLE views.commands (
    command_id       uuid        PRIMARY KEY,
    tenant           uuid        NOT NULL,
    run_id           uuid        NOT NULL,
    lease_id         uuid        NOT NULL,
    epoch            bigint      NOT NULL,
    environment_id   uuid        NOT NULL,
    state            text        NOT NULL CHECK (state IN ('accepted', 'running', 'finished', 'interrupted')),
    argv             text        NOT NULL,       -- JSON list
    cwd              text        NOT NULL,       -- JSON string
    background       boolean     NOT NULL,
    started_by       uuid,
    kill_requested   text,
    queued_ms        bigint,
    cause            text,
    may_have_run     boolean,
    accepted_at      timestamptz NOT NULL,
    started_at       timestamptz,
    finished_at      timestamptz,
    created_position bigint      NOT NULL,
    position         bigint      NOT NULL,
    -- The result, once finished.
    exit_code        int,
    killed_by        text,
    evidence         text,                       -- JSON object
    stragglers       bigint,
    stdout           text,                       -- JSON object: view, counts, digest
    stderr           text,                       -- JSON object
    files_changed    text,                       -- JSON list
    files_changed_truncated boolean,
    usage            text,                       -- JSON object
    duration_ms      bigint,
    CHECK ((state = 'finished') = (stdout IS NOT NULL))
);
CREATE INDEX commands_by_tenant ON views.commands (tenant, created_position);
CREATE INDEX commands_by_run ON views.commands (run_id, created_position);
CREATE INDEX commands_by_lease ON views.commands (lease_id, created_position);
CREATE INDEX commands_open ON views.commands (environment_id, created_position) WHERE state IN ('accepted', 'running');

-- The history of a run, in whatever streams it is written.
CREATE TABLE views.run_events (
    position bigint   PRIMARY KEY,
    tenant   uuid     NOT NULL,
    run_id   uuid     NOT NULL,
    type_id  smallint NOT NULL
);
CREATE INDEX run_events_by_run ON views.run_events (run_id, position);

RESET ROLE;
