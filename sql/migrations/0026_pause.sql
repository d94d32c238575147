-- A paused queue, and a paused group of a queue, deliver nothing (ADR 57). No option: configuring does not change it.
ALTER TABLE queen.queues ADD COLUMN paused bool NOT NULL DEFAULT false;
COMMENT ON COLUMN queen.queues.paused IS 'Whether no group of the queue gets messages.';
ALTER TABLE queen.consumer_groups_metadata ADD COLUMN paused bool NOT NULL DEFAULT false;
COMMENT ON COLUMN queen.consumer_groups_metadata.paused IS 'Whether the group gets no messages of this queue.';

-- Their columns change; the new ones are made at every start.
DROP FUNCTION IF EXISTS queen.list_queues_v1(text, text, text[], text, text, int, int);
DROP FUNCTION IF EXISTS queen.get_queue_v1(text);
DROP FUNCTION IF EXISTS queen.list_groups_v1(text[], text, text, int, int);
DROP FUNCTION IF EXISTS queen.list_queue_figures_v1(int);
DROP FUNCTION IF EXISTS queen.list_group_figures_v1(int);
