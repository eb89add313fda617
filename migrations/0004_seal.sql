-- The seal: tiles of the Merkle tree over the log's leaves, signed heads, and the keys that verifiers pin.
--
-- Formats are those of C2SP (tlog-tiles of height 8, tlog-checkpoint, signed-note). No row ever changes. A tile of level 0 is a row
-- once it is full; until then its hashes are the leaves in log.events, and a head costs no second copy of up to 255 of them. A tile
-- above changes once in 256 events: when a head is signed it is a row of its own for each width, full or not. Any tree size up to
-- the last head can be proven from the narrowest row that is wide enough, and from the leaves of the last events.

DO $check$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'leasehold_seal') THEN
        RAISE EXCEPTION 'the role leasehold_seal is missing: an administrator runs migrations/roles.sql once per server';
    END IF;
END
$check$;

SET LOCAL ROLE leasehold_owner;

-- Hash number i of tile (level, index) is the root of the complete subtree of 256^level leaves that begins at leaf
-- (index * 256 + i) * 256^level. Level 0 holds the leaves themselves.
CREATE TABLE log.tiles (
    level  smallint NOT NULL CHECK (level BETWEEN 0 AND 6),
    index  bigint   NOT NULL CHECK (index >= 0),
    width  smallint NOT NULL CHECK (width BETWEEN 1 AND 256),
    hashes bytea    NOT NULL CHECK (octet_length(hashes) = 32 * width),
    PRIMARY KEY (level, index, width),
    CONSTRAINT "leaves of a tile that is not full are in log.events" CHECK (level > 0 OR width = 256)
);
-- Hashes do not compress.
ALTER TABLE log.tiles ALTER COLUMN hashes SET STORAGE EXTERNAL;

CREATE TABLE log.checkpoints (
    size bigint PRIMARY KEY CHECK (size BETWEEN 1 AND 9007199254740992),
    note text   NOT NULL
);

SELECT log.guard_table('log.tiles');
SELECT log.guard_table('log.checkpoints');

-- Verifier keys (signed-note) whose signatures on heads of this log count. A key that was pinned stays: it verifies old heads.
ALTER TABLE log.log_meta ADD COLUMN verifier_keys text[] NOT NULL DEFAULT '{}';

CREATE FUNCTION log.pin_verifier_key(key text) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF split_part(key, '+', 1) <> (SELECT origin FROM log.log_meta) THEN
        RAISE EXCEPTION 'the name of a key must be the origin of the log' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    UPDATE log.log_meta SET verifier_keys = verifier_keys || key WHERE key <> ALL (verifier_keys);
END
$$;

REVOKE ALL ON FUNCTION log.pin_verifier_key(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION log.pin_verifier_key(text) TO leasehold_migrate;

-- What the sealer needs: no body, of the columns of an event only those that it checks, and of a stream only how it ends, which
-- tells which event was changed when a root is wrong.
GRANT USAGE ON SCHEMA log TO leasehold_seal;
GRANT SELECT ON log.log_meta, log.log_head TO leasehold_seal;
GRANT SELECT (position, stream_id, version, leaf, header) ON log.events TO leasehold_seal;
GRANT SELECT (id, version, tip) ON log.streams TO leasehold_seal;
GRANT SELECT, INSERT ON log.tiles, log.checkpoints TO leasehold_seal;
GRANT SELECT ON log.tiles, log.checkpoints TO leasehold_append, leasehold_project, leasehold_audit;

RESET ROLE;
