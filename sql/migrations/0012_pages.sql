-- Lists in pages: their arguments or results have changed.
DROP FUNCTION IF EXISTS queen.list_queues_v1(text, text, text, int, int);
DROP FUNCTION IF EXISTS queen.count_labels_v1(bool);
DROP FUNCTION IF EXISTS queen.list_groups_v1();
DROP FUNCTION IF EXISTS queen.list_queue_metrics_v1(
    timestamptz, timestamptz, int, text, text, text, bool, bool, bool
);
DROP FUNCTION IF EXISTS queen.list_worker_metrics_v1(timestamptz, timestamptz, int, text, int, bool, bool);
