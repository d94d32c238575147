"""All limits that are not settings; the name ends with the unit."""

NAME_CHARS_MAX = 255
TRANSACTION_ID_CHARS_MAX = 255
GROUP_CHARS_MAX = 255
TIMER_KEY_CHARS_MAX = 255
#: The longest name of a cron schedule: a transaction id has a time after it.
SCHEDULE_NAME_CHARS_MAX = 200
#: The most times of a schedule that can be made up for.
CATCH_UP_MAX = 1000
#: How far ahead a timer may be: ten years.
TIMER_SECONDS_MAX = 3660 * 24 * 3600
BATCH_MESSAGES_MAX = 10_000
POP_PARTITIONS_MAX = 1_000
LEASE_SECONDS_MAX = 7 * 24 * 3600
TIMEOUT_MS_MAX = 3_600_000
STATE_KEY_BYTES_MAX = 2048
ERROR_TEXT_CHARS_MAX = 10_000
#: Default of the data that one pop may return, and the limit for all pops of one call together.
POP_BYTES = 16 << 20
POP_CALL_BYTES_MAX = 16 << 20
#: A push with more data has a transaction of its own: other calls would wait for it.
GROUP_BYTES_MAX = 256 << 10
#: Maximum of cursors that one transaction creates or moves: pushes to their partitions wait meanwhile.
CURSORS_STEP = 1000
#: Default of the elements of a request (messages, acks, operations, keys), and the memory for all requests in progress.
ITEMS_MAX = 50_000
WORK_BYTES_MAX = 128 << 20
AUTOPILOT_BATCH_MESSAGES = 200
AUTOPILOT_PARTITIONS = 16
#: How long a call for messages waits for one lock; then its requests that need the lock get calls of their own.
LOCK_WAIT_S = 0.05
#: How long a call of the background jobs waits for a lock: they share one connection.
BACKGROUND_LOCK_WAIT_S = 1.0
#: How long a call of administration waits for a lock at a time: others wait for what it holds meanwhile.
ADMINISTRATION_LOCK_WAIT_S = 0.25
#: Limits of the head of a request: bytes, header lines, and bytes of path and query.
HEAD_BYTES_MAX = 32 << 10
HEADERS_MAX = 100
URL_BYTES_MAX = 16 << 10
#: Maximum credit of a WebSocket, and the largest frame of its client.
SOCKET_CREDIT_MAX = 10_000
SOCKET_FRAME_BYTES_MAX = 1 << 20
#: Maximum of checks of long polls per second and worker while it gets notifications.
CHECKS_PER_S = 50
#: Open files that are not long polls: listeners, connections to PostgreSQL, requests that do not wait.
FILES_BESIDE_WAITERS = 512
#: Lanes in which the requests of a spool file are stored in parallel, with a connection each. A partly stored file
#: must be divided as before: with another number its positions would be unknown, and that part would be stored again.
REPLAY_LANES = 4
#: Time limit of a call of the replay; then its requests are held back, because all pushes wait for the end of the
#: spool.
REPLAY_CALL_S = 4.0
#: Connections to PostgreSQL that a worker has for notifications, health probe and background jobs.
BACKGROUND_CONNECTIONS = 3
#: Open files of a worker that are no connections of clients or to PostgreSQL: listeners, spool, logs, metrics.
FILES_OF_WORKER = 64
#: Minimum of client connections that a worker must be able to hold in order to start.
CONNECTIONS_MIN = 16
#: Minimum speed at which a client must send a body or read an answer, measured over each QUEEN_REQUEST_TIMEOUT.
BYTES_PER_S_MIN = 1024
#: Maximum size of a notification of another instance: its sender holds less.
NOTICES_BYTES_MAX = 1 << 20
#: Headers of a message: how many, and bytes of names and values together.
MESSAGE_HEADERS_MAX, MESSAGE_HEADERS_BYTES_MAX = 32, 4096
