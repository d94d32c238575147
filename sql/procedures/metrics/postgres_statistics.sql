-- Purpose:   reads PostgreSQL's own statistics, in all and for the tables of this schema.
-- Returns:   an object with the names of GET /api/v1/analytics/postgres-stats; sizes are bytes.
CREATE OR REPLACE FUNCTION queen.postgres_statistics_v1() RETURNS json
LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH tables AS MATERIALIZED (
        SELECT s.*, io.heap_blks_read, io.heap_blks_hit, io.idx_blks_read, io.idx_blks_hit
        FROM pg_stat_user_tables AS s JOIN pg_statio_user_tables AS io ON io.relid = s.relid
        WHERE s.schemaname = 'queen'
    )
    SELECT json_build_object(
        'timestamp', clock_timestamp(),
        'database', current_database(),
        'databaseCache', (
            SELECT json_build_object(
                'database', d.datname, 'diskReads', d.blks_read, 'cacheHits', d.blks_hit,
                'cacheHitRatio', queen.percentage(d.blks_hit, d.blks_read))
            FROM pg_stat_database AS d WHERE d.datname = current_database()
        ),
        'tableCache', (
            SELECT coalesce(json_agg(json_build_object(
                'schema', t.schemaname, 'table', t.relname, 'diskReads', t.heap_blks_read, 'cacheHits', t.heap_blks_hit,
                'cacheHitRatio', queen.percentage(t.heap_blks_hit, t.heap_blks_read)) ORDER BY t.relname), '[]')
            FROM tables AS t
        ),
        'indexCache', (
            SELECT coalesce(json_agg(json_build_object(
                'schema', i.schemaname, 'table', i.relname, 'index', i.indexrelname, 'diskReads', i.idx_blks_read,
                'cacheHits', i.idx_blks_hit, 'cacheHitRatio', queen.percentage(i.idx_blks_hit, i.idx_blks_read))
                ORDER BY i.indexrelname), '[]')
            FROM pg_statio_user_indexes AS i WHERE i.schemaname = 'queen'
        ),
        'cacheSummary', (
            SELECT json_build_object(
                'tables', json_build_object(
                    'diskReads', coalesce(sum(t.heap_blks_read), 0), 'cacheHits', coalesce(sum(t.heap_blks_hit), 0),
                    'hitRatio', queen.percentage(sum(t.heap_blks_hit)::bigint, sum(t.heap_blks_read)::bigint)),
                'indexes', json_build_object(
                    'diskReads', coalesce(sum(t.idx_blks_read), 0), 'cacheHits', coalesce(sum(t.idx_blks_hit), 0),
                    'hitRatio', queen.percentage(sum(t.idx_blks_hit)::bigint, sum(t.idx_blks_read)::bigint)))
            FROM tables AS t
        ),
        'deadTuples', (
            SELECT coalesce(json_agg(json_build_object(
                'schema', t.schemaname, 'table', t.relname, 'deadTuples', t.n_dead_tup, 'liveTuples', t.n_live_tup,
                'deadPercentage', queen.percentage(t.n_dead_tup, t.n_live_tup),
                'lastVacuum', t.last_vacuum, 'lastAutovacuum', t.last_autovacuum) ORDER BY t.n_dead_tup DESC), '[]')
            FROM tables AS t
        ),
        'hotUpdates', (
            SELECT coalesce(json_agg(json_build_object(
                'schema', t.schemaname, 'table', t.relname, 'totalUpdates', t.n_tup_upd, 'hotUpdates', t.n_tup_hot_upd,
                'hotUpdatePercentage', queen.percentage(t.n_tup_hot_upd, t.n_tup_upd - t.n_tup_hot_upd))
                ORDER BY t.n_tup_upd DESC), '[]')
            FROM tables AS t
        ),
        'activeQueries', (
            SELECT coalesce(json_agg(json_build_object(
                'pid', a.pid, 'duration', date_part('epoch', clock_timestamp() - a.query_start), 'state', a.state,
                'query', left(a.query, 200), 'waitEventType', a.wait_event_type, 'waitEvent', a.wait_event)
                ORDER BY a.query_start), '[]')
            FROM pg_stat_activity AS a
            WHERE a.datname = current_database() AND a.state <> 'idle' AND a.pid <> pg_backend_pid()
        ),
        'autovacuumStatus', (
            SELECT coalesce(json_agg(json_build_object(
                'schema', t.schemaname, 'table', t.relname, 'vacuumCount', t.vacuum_count,
                'autovacuumCount', t.autovacuum_count, 'analyzeCount', t.analyze_count,
                'autoanalyzeCount', t.autoanalyze_count, 'lastAutovacuum', t.last_autovacuum,
                'lastAutoanalyze', t.last_autoanalyze) ORDER BY t.relname), '[]')
            FROM tables AS t
        ),
        'bufferConfig', json_build_object(
            'sharedBuffers', (SELECT s.setting FROM pg_settings AS s WHERE s.name = 'shared_buffers'),
            'sharedBuffersSize', current_setting('shared_buffers')),
        'bufferUsage', '[]'::json,
        'tableSizes', (
            SELECT coalesce(json_agg(json_build_object(
                'table', t.relname, 'totalSizeBytes', pg_total_relation_size(t.relid),
                'tableSizeBytes', pg_table_size(t.relid), 'indexSizeBytes', pg_indexes_size(t.relid))
                ORDER BY pg_total_relation_size(t.relid) DESC), '[]')
            FROM tables AS t
        )
    );
END;
COMMENT ON FUNCTION queen.postgres_statistics_v1 IS 'Statistics of PostgreSQL and of the tables of this schema.';
