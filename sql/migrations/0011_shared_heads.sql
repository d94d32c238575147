-- Retention holds heads beside pushes now (queen.lock_oldest), and nobody else asked for this.
DROP FUNCTION IF EXISTS queen.lock_heads(bigint[], bool);
