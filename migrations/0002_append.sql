-- The only way into the log. The service calls one of these two functions in autocommit: one round trip per batch.
--
-- Both lock the head row first, so appends are serial and each statement after the lock sees everything committed before it.
-- Answers per request (log.events and the tips change for `ok` alone; a refused request never undoes another):
--
--   0 ok          first position
--   1 duplicate   the key was used with the same digest: first position and count of what it wrote then
--   2 key_reused  the key was used with another digest
--   3 conflict    the stream's tip, or a guarded stream's, is not the expected one
--   4 stale       the same for a request that expects nothing: chain it to the tip in the answer and call again
--   5 clock       recorded_at is more than 5 s off this clock
--
-- A key counts for 24 hours, whether or not it has been pruned by then; an older one is written over.
-- A tip is (version, leaf of that version); (0, 32 zero bytes) says that there is no such stream.
--
-- Most batches are plain: no key, no guard, no stream twice, and every request fits. append_batch checks and writes such a batch
-- as a set; statuses is null then, and firsts holds only where the batch begins. Any other batch is walked request by request.

SET LOCAL ROLE leasehold_owner;

CREATE FUNCTION log.append_batch(
    -- One element per request. `r_stream` counts from 1 into the stream arrays; `r_any` marks requests without expectation;
    -- (r_version, r_leaf) is the tip that its events are chained to, r_tip the leaf of its last event.
    r_stream int[], r_any boolean[], r_version bigint[], r_leaf bytea[], r_count int[], r_tip bytea[],
    r_key_tenant uuid[], r_key text[], r_key_digest bytea[],
    -- Guards: streams of other names that must still have this tip.
    g_request int[], g_stream int[], g_version bigint[], g_leaf bytea[],
    -- The streams of the batch, each once.
    s_category text[], s_key text[],
    -- The events of all requests, in order.
    e_request int[], e_version bigint[], e_type smallint[], e_event_id uuid[], e_tenant uuid[],
    e_recorded_at timestamptz[], e_leaf bytea[], e_header bytea[], e_salt bytea[], e_body bytea[],
    OUT statuses smallint[], OUT firsts bigint[], OUT counts int[],
    OUT tip_versions bigint[], OUT tip_leaves bytea[], OUT database_time timestamptz
) LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    base       bigint;
    next       bigint;
    ids        bigint[];
    fresh      boolean[];
    versions   bigint[];
    leaves     bytea[];
    changed    boolean[];
    late       int[];
    has_guards boolean := cardinality(g_request) > 0;
    -- Events before the request in the arrays, and what makes a position of an event's index there.
    before     int := 0;
    shifts     bigint[];
    s          int;
    stored     record;
    earliest   timestamptz;
    latest     timestamptz;
    places     tid[];
    plain      boolean;
    new        int;
    moved      int;
    no_leaf CONSTANT bytea := decode(repeat('00', 32), 'hex');
BEGIN
    SELECT next_position INTO STRICT base FROM log.log_head FOR UPDATE;
    next := base;
    database_time := clock_timestamp();
    earliest := database_time - interval '5 s';
    latest := database_time + interval '5 s';

    IF NOT has_guards AND cardinality(s_key) = cardinality(r_stream) AND cardinality(array_remove(r_key, NULL)) = 0
       AND NOT (earliest > ANY (e_recorded_at) OR latest < ANY (e_recorded_at))
    THEN
        -- Under the lock nobody else moves a stream, so the place of its row stays.
        SELECT array_agg(coalesce(t.id, nextval('log.stream_ids')) ORDER BY u.i),
               array_agg(t.ctid ORDER BY u.i),
               bool_and((u.stream = u.i AND coalesce(t.version, 0) = u.version AND coalesce(t.tip, no_leaf) = u.leaf) IS TRUE),
               count(*) FILTER (WHERE t.id IS NULL)
          INTO ids, places, plain, new
          FROM unnest(s_category, s_key, r_stream, r_version, r_leaf)
               WITH ORDINALITY AS u(category, key, stream, version, leaf, i)
          LEFT JOIN LATERAL (
              SELECT ctid, id, version, tip FROM log.streams WHERE category = u.category AND key = u.key OFFSET 0
          ) AS t ON true;

        IF plain THEN
            next := base + cardinality(e_request);
            IF next > 9007199254740992 THEN
                RAISE EXCEPTION 'the log is full: positions end at 2^53' USING ERRCODE = 'LH001';
            END IF;

            INSERT INTO log.events (position, stream_id, version, type_id, event_id, tenant, recorded_at, leaf, header)
            SELECT base + u.i - 1, ids[u.request], u.version, u.type_id, u.event_id, u.tenant, u.recorded_at, u.leaf, u.header
              FROM unnest(e_request, e_version, e_type, e_event_id, e_tenant, e_recorded_at, e_leaf, e_header)
                   WITH ORDINALITY AS u(request, version, type_id, event_id, tenant, recorded_at, leaf, header, i);

            INSERT INTO log.event_bodies (position, salt, body)
            SELECT base + u.i - 1, u.salt, u.body
              FROM unnest(e_salt, e_body) WITH ORDINALITY AS u(salt, body, i);

            IF new > 0 THEN
                INSERT INTO log.streams (id, category, key, version, tip)
                SELECT u.id, u.category, u.key, u.version + u.count, u.tip
                  FROM unnest(ids, places, s_category, s_key, r_version, r_count, r_tip)
                       AS u(id, place, category, key, version, count, tip)
                 WHERE u.place IS NULL;
            END IF;
            IF new < cardinality(ids) THEN
                UPDATE log.streams AS t SET version = u.version + u.count, tip = u.tip
                  FROM unnest(places, r_version, r_count, r_tip) AS u(place, version, count, tip)
                 WHERE t.ctid = u.place;
                GET DIAGNOSTICS moved = ROW_COUNT;
                IF moved <> cardinality(ids) - new THEN
                    RAISE EXCEPTION 'a stream moved under the lock of the head';
                END IF;
            END IF;

            UPDATE log.log_head SET next_position = next;
            firsts := ARRAY[base];
            RETURN;
        END IF;
    END IF;

    SELECT array_agg(coalesce(t.id, nextval('log.stream_ids')) ORDER BY u.i),
           array_agg(t.id IS NULL ORDER BY u.i),
           array_agg(coalesce(t.version, 0) ORDER BY u.i),
           array_agg(coalesce(t.tip, no_leaf) ORDER BY u.i),
           array_agg(false)
      INTO ids, fresh, versions, leaves, changed
      FROM unnest(s_category, s_key) WITH ORDINALITY AS u(category, key, i)
      LEFT JOIN LATERAL (
          SELECT id, version, tip FROM log.streams WHERE category = u.category AND key = u.key OFFSET 0
      ) AS t ON true;

    SELECT array_agg(DISTINCT u.request) INTO late
      FROM unnest(e_request, e_recorded_at) AS u(request, recorded_at)
     WHERE u.recorded_at NOT BETWEEN earliest AND latest;

    FOR r IN 1 .. cardinality(r_stream) LOOP
        s := r_stream[r];
        firsts[r] := NULL;
        counts[r] := r_count[r];
        shifts[r] := next - before - 1;
        before := before + r_count[r];
        IF r_key[r] IS NOT NULL THEN
            SELECT k.digest, k.first_position, k.event_count INTO stored
              FROM log.request_keys AS k
             WHERE k.tenant = r_key_tenant[r] AND k.key = r_key[r]
               AND k.created_at >= database_time - interval '24 hours';
            IF FOUND THEN
                statuses[r] := CASE WHEN stored.digest = r_key_digest[r] THEN 1 ELSE 2 END;
                firsts[r] := stored.first_position;
                counts[r] := stored.event_count;
                tip_versions[r] := versions[s];
                tip_leaves[r] := leaves[s];
                CONTINUE;
            END IF;
        END IF;
        IF versions[s] <> r_version[r] OR leaves[s] <> r_leaf[r] THEN
            statuses[r] := CASE WHEN r_any[r] THEN 4 ELSE 3 END;
        ELSIF has_guards AND EXISTS (
            SELECT FROM unnest(g_request, g_stream, g_version, g_leaf) AS g(request, stream, version, leaf)
             WHERE g.request = r AND (versions[g.stream] <> g.version OR leaves[g.stream] <> g.leaf)
        ) THEN
            statuses[r] := 3;
        ELSIF r = ANY (late) THEN
            statuses[r] := 5;
        ELSE
            statuses[r] := 0;
            firsts[r] := next;
            next := next + r_count[r];
            versions[s] := r_version[r] + r_count[r];
            leaves[s] := r_tip[r];
            changed[s] := true;
            IF r_key[r] IS NOT NULL THEN
                INSERT INTO log.request_keys (tenant, key, digest, stream, first_position, event_count, created_at)
                VALUES (r_key_tenant[r], r_key[r], r_key_digest[r], s_category[s] || '/' || s_key[s],
                        firsts[r], r_count[r], database_time)
                ON CONFLICT (tenant, key) DO UPDATE SET
                    digest = excluded.digest, stream = excluded.stream, first_position = excluded.first_position,
                    event_count = excluded.event_count, created_at = excluded.created_at;
            END IF;
        END IF;
        tip_versions[r] := versions[s];
        tip_leaves[r] := leaves[s];
    END LOOP;

    IF next = base THEN
        RETURN;
    END IF;
    IF next > 9007199254740992 THEN
        RAISE EXCEPTION 'the log is full: positions end at 2^53' USING ERRCODE = 'LH001';
    END IF;

    INSERT INTO log.events (position, stream_id, version, type_id, event_id, tenant, recorded_at, leaf, header)
    SELECT shifts[u.request] + u.i, ids[r_stream[u.request]], u.version, u.type_id, u.event_id,
           u.tenant, u.recorded_at, u.leaf, u.header
      FROM unnest(e_request, e_version, e_type, e_event_id, e_tenant, e_recorded_at, e_leaf, e_header)
           WITH ORDINALITY AS u(request, version, type_id, event_id, tenant, recorded_at, leaf, header, i)
     WHERE statuses[u.request] = 0;

    INSERT INTO log.event_bodies (position, salt, body)
    SELECT shifts[u.request] + u.i, u.salt, u.body
      FROM unnest(e_request, e_salt, e_body) WITH ORDINALITY AS u(request, salt, body, i)
     WHERE statuses[u.request] = 0;

    INSERT INTO log.streams (id, category, key, version, tip)
    SELECT u.id, u.category, u.key, u.version, u.tip
      FROM unnest(ids, s_category, s_key, versions, leaves, fresh, changed)
           AS u(id, category, key, version, tip, fresh, changed)
     WHERE u.fresh AND u.changed;

    UPDATE log.streams AS t SET version = u.version, tip = u.tip
      FROM unnest(ids, versions, leaves, fresh, changed) AS u(id, version, tip, fresh, changed)
     WHERE t.id = u.id AND u.changed AND NOT u.fresh;

    UPDATE log.log_head SET next_position = next;
END
$$;

-- One request with one event and no guard: the same in fewer steps.
CREATE FUNCTION log.append_one(
    r_category text, r_stream_key text, r_any boolean, r_version bigint, r_leaf bytea,
    r_key_tenant uuid, r_key text, r_key_digest bytea,
    e_type smallint, e_event_id uuid, e_tenant uuid, e_recorded_at timestamptz,
    e_leaf bytea, e_header bytea, e_salt bytea, e_body bytea,
    OUT status smallint, OUT first bigint, OUT count int,
    OUT tip_version bigint, OUT tip_leaf bytea, OUT database_time timestamptz
) LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    base   bigint;
    stream bigint;
    stored record;
    no_leaf CONSTANT bytea := decode(repeat('00', 32), 'hex');
BEGIN
    -- Takes the lock and the position at once; whoever is refused below gives it back.
    UPDATE log.log_head SET next_position = next_position + 1 RETURNING next_position - 1 INTO STRICT base;
    database_time := clock_timestamp();
    status := 0;
    IF r_key IS NOT NULL THEN
        SELECT k.digest, k.first_position, k.event_count INTO stored
          FROM log.request_keys AS k
         WHERE k.tenant = r_key_tenant AND k.key = r_key AND k.created_at >= database_time - interval '24 hours';
        IF FOUND THEN
            status := CASE WHEN stored.digest = r_key_digest THEN 1 ELSE 2 END;
            first := stored.first_position;
            count := stored.event_count;
        END IF;
    END IF;
    IF e_recorded_at NOT BETWEEN database_time - interval '5 s' AND database_time + interval '5 s' AND status = 0 THEN
        status := 5;
    END IF;
    IF status = 0 AND r_version > 0 THEN
        UPDATE log.streams AS t SET version = r_version + 1, tip = e_leaf
         WHERE t.category = r_category AND t.key = r_stream_key AND t.version = r_version AND t.tip = r_leaf
        RETURNING t.id INTO stream;
    ELSIF status = 0 AND r_leaf = no_leaf THEN
        INSERT INTO log.streams (id, category, key, version, tip)
        VALUES (nextval('log.stream_ids'), r_category, r_stream_key, 1, e_leaf)
        ON CONFLICT DO NOTHING RETURNING id INTO stream;
    END IF;

    IF stream IS NULL THEN
        UPDATE log.log_head SET next_position = base;
        SELECT t.version, t.tip INTO tip_version, tip_leaf
          FROM log.streams AS t WHERE t.category = r_category AND t.key = r_stream_key;
        tip_version := coalesce(tip_version, 0);
        tip_leaf := coalesce(tip_leaf, no_leaf);
        IF status = 0 THEN
            status := CASE WHEN r_any THEN 4 ELSE 3 END;
        END IF;
        RETURN;
    END IF;

    first := base;
    count := 1;
    tip_version := r_version + 1;
    tip_leaf := e_leaf;
    INSERT INTO log.events (position, stream_id, version, type_id, event_id, tenant, recorded_at, leaf, header)
    VALUES (base, stream, tip_version, e_type, e_event_id, e_tenant, e_recorded_at, e_leaf, e_header);
    INSERT INTO log.event_bodies (position, salt, body) VALUES (base, e_salt, e_body);
    IF r_key IS NOT NULL THEN
        INSERT INTO log.request_keys (tenant, key, digest, stream, first_position, event_count, created_at)
        VALUES (r_key_tenant, r_key, r_key_digest, r_category || '/' || r_stream_key, base, 1, database_time)
        ON CONFLICT (tenant, key) DO UPDATE SET
            digest = excluded.digest, stream = excluded.stream, first_position = excluded.first_position,
            event_count = excluded.event_count, created_at = excluded.created_at;
    END IF;
END
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA log FROM PUBLIC;
GRANT EXECUTE ON FUNCTION log.append_batch, log.append_one TO leasehold_append;

RESET ROLE;
