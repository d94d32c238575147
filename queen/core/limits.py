"""Every bound that is not a setting, with its unit last."""

NAME_CHARS_MAX = 255
TRANSACTION_ID_CHARS_MAX = 255
GROUP_CHARS_MAX = 255
BATCH_MESSAGES_MAX = 10_000
POP_PARTITIONS_MAX = 1_000
LEASE_SECONDS_MAX = 7 * 24 * 3600
TIMEOUT_MS_MAX = 3_600_000
STATE_KEY_BYTES_MAX = 2048
ERROR_TEXT_CHARS_MAX = 10_000
#: Data that one pop may return unless a setting says otherwise, and that all pops of one call may together.
POP_BYTES = 16 << 20
POP_CALL_BYTES_MAX = 16 << 20
#: A push with more data has a transaction of its own: others would wait for it.
GROUP_BYTES_MAX = 256 << 10
#: Cursors that one transaction makes or moves at most: pushes to their partitions wait meanwhile.
CURSORS_STEP = 1000
#: Elements of a request (messages, acks, operations, keys) unless a setting says otherwise, and what all requests that
#: are worked on may take.
ITEMS_MAX = 50_000
WORK_BYTES_MAX = 128 << 20
AUTOPILOT_BATCH_MESSAGES = 200
AUTOPILOT_PARTITIONS = 16
#: A call for messages waits so long for one lock; then those of its requests that need it get calls of their own.
LOCK_WAIT_S = 0.05
#: Open files that are not long polls: listeners, connections to PostgreSQL, requests that do not wait.
FILES_BESIDE_WAITERS = 512
#: Requests of a spool file are stored side by side in so many lanes, with a connection each. A file of which a part is
#: stored must be dealt out as before: with another number its positions would be unknown, and that part stored again.
REPLAY_LANES = 4
#: What a call of the replay may take before its requests are held back: all pushes wait for the end of the spool.
REPLAY_CALL_S = 4.0
#: Connections to PostgreSQL that a worker opens at most beside those of the settings: for notices, the pulse, the
#: services and the replay.
CONNECTIONS_BESIDE_POOLS = 3 + REPLAY_LANES
#: Open files of a worker that are neither clients' connections nor PostgreSQL's: listeners, the spool, logs, metrics.
FILES_OF_WORKER = 64
#: Clients' connections that a worker must be able to hold, or it is not started.
CONNECTIONS_MIN = 16
#: The slowest that a body may come, or an answer be read, measured over each QUEEN_REQUEST_TIMEOUT.
BYTES_PER_S_MIN = 1024
#: A notice of another instance: the outbox of its sender holds less.
NOTICES_BYTES_MAX = 1 << 20
