-- The log: tables, partitions, and what keeps them append-only.
--
-- Bytes are the truth: events.header and event_bodies.body are RFC 8785 canonical JSON; every other column is an index over
-- the header, and the verifier checks that it says the same. Positions start at 0, versions at 1.

DO $check$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'leasehold_append') THEN
        RAISE EXCEPTION 'the roles are missing: an administrator runs migrations/roles.sql once per server';
    END IF;
END
$check$;

-- Objects belong to the role that nobody logs in as.
SET LOCAL ROLE leasehold_owner;

CREATE SCHEMA log;
GRANT USAGE ON SCHEMA log TO leasehold_append, leasehold_project, leasehold_audit;

-- One row. What verifiers pin.
CREATE TABLE log.log_meta (
    one        boolean PRIMARY KEY DEFAULT true CHECK (one),
    log_id     uuid NOT NULL,
    origin     text NOT NULL,              -- first line of a checkpoint (C2SP tlog-checkpoint)
    epoch      int  NOT NULL DEFAULT 1,    -- grows when a restored database is accepted
    min_reader int  NOT NULL DEFAULT 1     -- programs that read less refuse to start
);
INSERT INTO log.log_meta (log_id, origin) SELECT id, 'leasehold/log/' || id FROM gen_random_uuid() AS id;

-- One row, locked first by every append: positions are handed out in commit order and without a gap. The low fill factor
-- keeps its many versions inside one page.
CREATE TABLE log.log_head (
    one           boolean PRIMARY KEY DEFAULT true CHECK (one),
    -- Positions stay below 2^53: exact in JSON.
    next_position bigint NOT NULL CONSTRAINT "positions end at 2^53" CHECK (next_position BETWEEN 0 AND 9007199254740992)
) WITH (fillfactor = 10);
INSERT INTO log.log_head (next_position) VALUES (0);

-- The tip of each stream: version and leaf of its last event.
CREATE SEQUENCE log.stream_ids;
CREATE TABLE log.streams (
    id       bigint PRIMARY KEY,
    category text   NOT NULL,
    key      text   NOT NULL,
    version  bigint NOT NULL,
    tip      bytea  NOT NULL CHECK (octet_length(tip) = 32),
    UNIQUE (category, key)
) WITH (fillfactor = 70);

CREATE TABLE log.events (
    position    bigint      NOT NULL,
    stream_id   bigint      NOT NULL,
    version     bigint      NOT NULL,
    type_id     smallint    NOT NULL,
    event_id    uuid        NOT NULL,
    tenant      uuid        NOT NULL,
    recorded_at timestamptz NOT NULL,
    leaf        bytea       NOT NULL CHECK (octet_length(leaf) = 32), -- SHA-256(0x00 || header)
    header      bytea       NOT NULL,
    PRIMARY KEY (position)
) PARTITION BY RANGE (position);
CREATE INDEX events_type_position ON log.events (type_id, position);

-- Apart from the header, so that a body can be erased while the chain stays whole.
CREATE TABLE log.event_bodies (
    position bigint NOT NULL,
    salt     bytea  NOT NULL CHECK (octet_length(salt) = 32),
    body     bytea  NOT NULL,
    PRIMARY KEY (position)
) PARTITION BY RANGE (position);

-- Idempotency keys; not part of the log, kept for 24 hours.
CREATE TABLE log.request_keys (
    tenant         uuid        NOT NULL,
    key            text        NOT NULL,
    digest         bytea       NOT NULL,
    stream         text        NOT NULL,
    first_position bigint      NOT NULL,
    event_count    int         NOT NULL,
    created_at     timestamptz NOT NULL,
    PRIMARY KEY (tenant, key)
);
CREATE INDEX request_keys_created_at ON log.request_keys (created_at);

CREATE FUNCTION log.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the log is append-only: % on %.% is refused', TG_OP, TG_TABLE_SCHEMA, TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege';
END
$$;

-- Guards one table. ENABLE ALWAYS: session_replication_role is no back door. A statement trigger of a partitioned parent does
-- not fire for statements that name a partition, so every partition gets its own.
CREATE FUNCTION log.guard_table(relation regclass) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    operation text;
BEGIN
    FOREACH operation IN ARRAY ARRAY['update', 'delete', 'truncate'] LOOP
        EXECUTE format('CREATE TRIGGER refuse_%s BEFORE %s ON %s FOR EACH STATEMENT EXECUTE FUNCTION log.refuse_change()',
                       operation, operation, relation);
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER refuse_%s', relation, operation);
    END LOOP;
    EXECUTE format('REVOKE ALL ON %s FROM PUBLIC, leasehold_migrate, leasehold_append, leasehold_project, leasehold_audit',
                   relation);
END
$$;

SELECT log.guard_table('log.events');
SELECT log.guard_table('log.event_bodies');

-- Partition number `index` holds positions [index * 2^24, (index + 1) * 2^24). Made beside the parent and then attached:
-- attaching does not block readers or writers of the parent.
CREATE FUNCTION log.create_partition(parent text, index bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    name  text   := format('log.%I', parent || '_p' || index);
    lower bigint := index << 24;
    upper bigint := (index + 1) << 24;
BEGIN
    IF to_regclass(name) IS NOT NULL THEN
        RETURN;
    END IF;
    EXECUTE format('CREATE TABLE %s (LIKE log.%I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', name, parent);
    EXECUTE format('ALTER TABLE %s ADD CONSTRAINT in_range CHECK (position >= %s AND position < %s)', name, lower, upper);
    IF parent = 'events' THEN
        -- Unique within a partition; across partitions the tips in log.streams see to it.
        EXECUTE format('ALTER TABLE %s ADD UNIQUE (stream_id, version)', name);
    END IF;
    PERFORM log.guard_table(name::regclass);
    EXECUTE format('ALTER TABLE log.%I ATTACH PARTITION %s FOR VALUES FROM (%s) TO (%s)', parent, name, lower, upper);
    EXECUTE format('ALTER TABLE %s DROP CONSTRAINT in_range', name);
END
$$;

-- Makes the partitions that the next 2^23 events (half a partition) need. Called at start and when the last is half full.
-- Answers how many there are.
CREATE FUNCTION log.ensure_partitions() RETURNS int LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    head  bigint;
    index bigint;
BEGIN
    -- One at a time; the number is this function's own.
    PERFORM pg_advisory_xact_lock(7311202401);
    SELECT next_position INTO STRICT head FROM log.log_head;
    FOR index IN (head >> 24) .. (least(head + (1 << 23), 9007199254740991) >> 24) LOOP
        PERFORM log.create_partition('events', index);
        PERFORM log.create_partition('event_bodies', index);
    END LOOP;
    RETURN (SELECT count(*) FROM pg_inherits WHERE inhparent = 'log.events'::regclass);
END
$$;

SELECT log.ensure_partitions();

-- Forgets keys older than 24 hours; answers how many.
CREATE FUNCTION log.prune_request_keys() RETURNS bigint LANGUAGE sql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH pruned AS (
        DELETE FROM log.request_keys WHERE created_at < clock_timestamp() - interval '24 hours' RETURNING 1
    )
    SELECT count(*) FROM pruned
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA log FROM PUBLIC;
GRANT EXECUTE ON FUNCTION log.ensure_partitions(), log.prune_request_keys() TO leasehold_append;
GRANT SELECT ON log.log_meta, log.log_head, log.streams, log.events, log.event_bodies
    TO leasehold_append, leasehold_project, leasehold_audit;
GRANT SELECT ON log.request_keys TO leasehold_append, leasehold_audit;

-- The read schema: everything in it belongs to the project role and can be made anew from the log.
RESET ROLE;
DO $create$
BEGIN
    EXECUTE format('GRANT CREATE ON DATABASE %I TO leasehold_project', current_database());
END
$create$;
SET LOCAL ROLE leasehold_project;

CREATE SCHEMA views;
GRANT USAGE ON SCHEMA views TO leasehold_audit;
ALTER DEFAULT PRIVILEGES IN SCHEMA views GRANT SELECT ON TABLES TO leasehold_audit;

-- One row per consumer of the log, moved in the transaction that applies a page. `fence` grows with each claim: who was
-- displaced can no longer move it.
CREATE TABLE views.consumers (
    name             text   PRIMARY KEY,
    position         bigint NOT NULL DEFAULT 0,  -- first position not yet applied
    leaf_at_position bytea,                      -- leaf of the last applied event; NULL when none is
    epoch            int    NOT NULL,            -- log_meta.epoch when it was last moved
    owner            uuid   NOT NULL,            -- instance that claimed it
    fence            bigint NOT NULL
);

RESET ROLE;
DO $create$
BEGIN
    EXECUTE format('REVOKE CREATE ON DATABASE %I FROM leasehold_project', current_database());
END
$create$;
