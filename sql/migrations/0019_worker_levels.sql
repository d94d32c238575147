-- What a worker looks at once a second: sums, minima, maxima and last values per minute, where there were only the values at the
-- end of ten seconds; and the port of its server.
ALTER TABLE queen.worker_metrics
ADD COLUMN port int,
ADD COLUMN seconds int,
ADD COLUMN totals float8[],
ADD COLUMN lows float8[],
ADD COLUMN highs float8[],
ADD COLUMN lasts float8[];
COMMENT ON COLUMN queen.worker_metrics.port IS 'Where its server listens; NULL: on no port.';
COMMENT ON COLUMN queen.worker_metrics.seconds IS
'How often it looked at its levels, once a second; NULL: an earlier version did not.';
COMMENT ON COLUMN queen.worker_metrics.totals IS
'Sums of levels: user and system CPU in percent of a core, resident and virtual bytes, connections, idle and busy ones, waiting jobs, waiting long polls.';
COMMENT ON COLUMN queen.worker_metrics.lows IS 'Minima of the same levels.';
COMMENT ON COLUMN queen.worker_metrics.highs IS 'Maxima of the same levels.';
COMMENT ON COLUMN queen.worker_metrics.lasts IS 'Last values of the same levels.';

-- Their arguments or results have changed.
DROP FUNCTION IF EXISTS queen.record_worker_metrics_v1(
    timestamptz, text, text, int, bigint, bigint, float8, float8, float8, bigint, bigint, int, int, int, int, interval
);
DROP FUNCTION IF EXISTS queen.list_worker_metrics_v1(timestamptz, timestamptz, int, text, int, text[], bool, bool);
