-- The secret with which instances sign notifications to each other, where QUEEN_SYNC_SECRET sets none: who can read the
-- database may send them. Two UUIDs have 244 random bits.

INSERT INTO queen.system_state (key, value, updated_at)
VALUES ('peer_secret', to_jsonb(gen_random_uuid()::text || gen_random_uuid()::text), clock_timestamp());
