-- They have other arguments or columns now; the new ones are made at every start.
DROP FUNCTION IF EXISTS queen.list_queues_v1(text, text, text[], text, text, int, int);
DROP FUNCTION IF EXISTS queen.list_groups_v1(text[], text, text, int, int);
DROP FUNCTION IF EXISTS queen.list_cursors_v1(text, int, int);
DROP FUNCTION IF EXISTS queen.list_partitions_v1(text, text, text, int, int);
DROP FUNCTION IF EXISTS queen.lagging_cursors(bigint[], bigint, timestamptz, timestamptz);
DROP FUNCTION IF EXISTS queen.get_message_v1(bigint, bigint, uuid);
DROP FUNCTION IF EXISTS queen.message_groups(bigint[], bigint[]);
DROP FUNCTION IF EXISTS queen.count_dead_letters_v1(text, text, text, timestamptz, timestamptz, int);
DROP FUNCTION IF EXISTS queen.summarize_dead_letters_v1(text);
DROP FUNCTION IF EXISTS queen.list_dead_letters_v1(
    text, text, text, timestamptz, timestamptz, int, int, int, int
);
DROP FUNCTION IF EXISTS queen.find_dead_letters(text, text, text, timestamptz, timestamptz, int, int, int);
DROP FUNCTION IF EXISTS queen.delete_dead_letters_v1(text, text, timestamptz, bigint, int);
