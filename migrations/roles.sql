-- Roles of a Leasehold log. They belong to the whole server, not to one database, so this file is not a numbered migration:
-- an administrator runs it once per server (repeating it changes nothing), then creates the database:
--
--   psql -f migrations/roles.sql
--   createdb --owner leasehold_owner leasehold
--
-- The embedded server of development does the same. How each role logs in (password, certificate, peer) is the
-- administrator's choice.

DO $roles$
DECLARE
    wanted record;
BEGIN
    FOR wanted IN
        SELECT * FROM (VALUES
            ('leasehold_owner',   'NOLOGIN', 'owns the log; nobody logs in as it'),
            ('leasehold_migrate', 'LOGIN',   'runs migrations'),
            ('leasehold_append',  'LOGIN',   'the service: calls the append function and reads'),
            ('leasehold_project', 'LOGIN',   'owns the read models, reads the log'),
            ('leasehold_seal',    'LOGIN',   'the sealer: reads headers, adds tiles and signed heads'),
            ('leasehold_audit',   'LOGIN',   'reads everything, writes nothing')
        ) AS roles(name, login, purpose)
    LOOP
        CONTINUE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = wanted.name);
        BEGIN
            EXECUTE format('CREATE ROLE %I %s NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS',
                           wanted.name, wanted.login);
            EXECUTE format('COMMENT ON ROLE %I IS %L', wanted.name, wanted.purpose);
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL; -- another starter made it meanwhile
        END;
    END LOOP;
    -- Migrations create objects for the two owning roles.
    IF NOT pg_has_role('leasehold_migrate', 'leasehold_owner', 'MEMBER') THEN
        GRANT leasehold_owner TO leasehold_migrate;
    END IF;
    IF NOT pg_has_role('leasehold_migrate', 'leasehold_project', 'MEMBER') THEN
        GRANT leasehold_project TO leasehold_migrate;
    END IF;
END
$roles$;
