-- It has another argument now; the new one is made at every start.
DROP FUNCTION IF EXISTS queen.list_trace_names_v1(int, int, int, int);

-- The queues of one group, among those of all groups.
CREATE INDEX consumer_groups_metadata_name ON queen.consumer_groups_metadata (name, queue_id);
