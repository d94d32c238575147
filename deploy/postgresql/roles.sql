-- Four roles with no more rights than they need. Run it as a superuser in Queen's database, before `queen init` or later,
-- as often as you like; then give both a password (\password queen_owner, \password queen_server).
--
--   queen_owner   owns the schemas `queen` and `simple_mq`: only `queen init` uses it, at each new version
--   queen_server  what servers log in as: reads and writes rows and calls procedures; makes, changes and drops nothing
--   queen_producer  may push with SQL (queen.push), and nothing else: grant it to roles of your applications. It does not
--                 log in; `queen init` gives it its rights
--   queen_consumer  may pop and ack with SQL (queen.pop), likewise
--
-- docs/security.md says how they are used.

DO $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'queen_owner') THEN
        CREATE ROLE queen_owner LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOINHERIT;
    END IF;
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'queen_server') THEN
        CREATE ROLE queen_server LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOINHERIT;
    END IF;
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'queen_producer') THEN
        CREATE ROLE queen_producer NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE;
    END IF;
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'queen_consumer') THEN
        CREATE ROLE queen_consumer NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE;
    END IF;
    EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format('GRANT CONNECT, CREATE ON DATABASE %I TO queen_owner', current_database());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO queen_server, queen_producer, queen_consumer', current_database());
END $$;

-- What `queen init` will make, now and with later versions.
ALTER DEFAULT PRIVILEGES FOR ROLE queen_owner REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
ALTER DEFAULT PRIVILEGES FOR ROLE queen_owner GRANT USAGE ON SCHEMAS TO queen_server;
ALTER DEFAULT PRIVILEGES FOR ROLE queen_owner GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO queen_server;
ALTER DEFAULT PRIVILEGES FOR ROLE queen_owner GRANT USAGE ON SEQUENCES TO queen_server;
ALTER DEFAULT PRIVILEGES FOR ROLE queen_owner GRANT EXECUTE ON FUNCTIONS TO queen_server;

-- What somebody else has made already goes to the owner.
DO $$
DECLARE
    v_schema text;
    v_thing record;
BEGIN
    FOREACH v_schema IN ARRAY ARRAY['queen', 'simple_mq'] LOOP
        CONTINUE WHEN to_regnamespace(v_schema) IS NULL;
        EXECUTE format('ALTER SCHEMA %I OWNER TO queen_owner', v_schema);
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO queen_server', v_schema);
        FOR v_thing IN
            SELECT format('ALTER TABLE %s OWNER TO queen_owner', c.oid::regclass) AS command
            FROM pg_class AS c
            WHERE c.relnamespace = to_regnamespace(v_schema) AND c.relkind IN ('r', 'p', 'v')
            UNION ALL
            SELECT format('ALTER ROUTINE %s OWNER TO queen_owner', p.oid::regprocedure)
            FROM pg_proc AS p
            WHERE p.pronamespace = to_regnamespace(v_schema)
            UNION ALL
            SELECT format('ALTER TYPE %s OWNER TO queen_owner', t.oid::regtype)
            FROM pg_type AS t
            LEFT JOIN pg_class AS c ON c.oid = t.typrelid
            WHERE t.typnamespace = to_regnamespace(v_schema) AND t.typelem = 0
                AND (t.typtype IN ('e', 'd') OR c.relkind = 'c')
        LOOP
            EXECUTE v_thing.command;
        END LOOP;
        EXECUTE format('REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA %I FROM PUBLIC', v_schema);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %I TO queen_server', v_schema);
        EXECUTE format('GRANT USAGE ON ALL SEQUENCES IN SCHEMA %I TO queen_server', v_schema);
        EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %I TO queen_server', v_schema);
    END LOOP;
END $$;
