// The operations that the dashboard calls: name, method, path and access level as in spec/openapi.yaml.

export const LEVELS = ["public", "read-only", "read-write", "admin"];

function operation(method, path, level) {
  return { method, path, level };
}

export const operations = {
  getHealth: operation("GET", "/health", "public"),
  getIdentity: operation("GET", "/auth/me", "read-only"),
  getOverview: operation("GET", "/api/v1/resources/overview", "read-only"),
  getStatus: operation("GET", "/api/v1/status", "read-only"),
  listQueues: operation("GET", "/api/v1/resources/queues", "read-only"),
  getQueueStatus: operation("GET", "/api/v1/status/queues/{queue}", "read-only"),
  getQueueOperations: operation("GET", "/api/v1/analytics/queue-ops", "read-only"),
  getConfiguration: operation("GET", "/api/v1/configure", "read-only"),
  configureQueue: operation("POST", "/api/v1/configure", "read-write"),
  deleteQueue: operation("DELETE", "/api/v1/resources/queues/{queue}", "admin"),
  pauseQueue: operation("POST", "/api/v1/resources/queues/{queue}/pause", "read-write"),
  push: operation("POST", "/api/v1/push", "read-write"),
  listMessages: operation("GET", "/api/v1/messages", "read-only"),
  getMessage: operation("GET", "/api/v1/messages/{partitionId}/{transactionId}", "read-only"),
  deleteMessage: operation("DELETE", "/api/v1/messages/{partitionId}/{transactionId}", "read-write"),
  retryMessage: operation("POST", "/api/v1/messages/{partitionId}/{transactionId}/retry", "read-write"),
  giveUpMessage: operation("POST", "/api/v1/messages/{partitionId}/{transactionId}/dlq", "read-write"),
  listDeadLetters: operation("GET", "/api/v1/dlq", "read-only"),
  purgeDeadLetters: operation("DELETE", "/api/v1/dlq", "admin"),
  deleteDeadLetter: operation("DELETE", "/api/v1/dlq/{deadLetterId}", "read-write"),
  replayDeadLetter: operation("POST", "/api/v1/dlq/{deadLetterId}/replay", "read-write"),
  listConsumerGroups: operation("GET", "/api/v1/consumer-groups", "read-only"),
  getConsumerGroup: operation("GET", "/api/v1/consumer-groups/{consumerGroup}", "read-only"),
  deleteConsumerGroupOfQueue: operation("DELETE", "/api/v1/consumer-groups/{consumerGroup}/queues/{queue}", "admin"),
  seekConsumerGroup: operation("POST", "/api/v1/consumer-groups/{consumerGroup}/queues/{queue}/seek", "read-write"),
  seekPartition: operation("POST", "/api/v1/consumer-groups/{consumerGroup}/queues/{queue}/partitions/{partition}/seek", "read-write"),
  pauseConsumerGroup: operation("POST", "/api/v1/consumer-groups/{consumerGroup}/queues/{queue}/pause", "read-write"),
  changeTimers: operation("POST", "/api/v1/timers", "read-write"),
  listTimers: operation("GET", "/api/v1/timers/{queue}", "read-only"),
  cancelTimer: operation("DELETE", "/api/v1/timers/{queue}/{timerKey}", "read-write"),
  listSchedules: operation("GET", "/api/v1/schedules", "read-only"),
  deleteSchedule: operation("DELETE", "/api/v1/schedules/{queue}/{name}", "read-write"),
  listTraceNames: operation("GET", "/api/v1/traces/names", "read-only"),
  listTracesByName: operation("GET", "/api/v1/traces/by-name/{traceName}", "read-only"),
  listTracesOfMessage: operation("GET", "/api/v1/traces/{partitionId}/{transactionId}", "read-only"),
  getWorkerMetrics: operation("GET", "/api/v1/analytics/worker-metrics", "read-only"),
  getPostgresStatistics: operation("GET", "/api/v1/analytics/postgres-stats", "read-only"),
  getRetention: operation("GET", "/api/v1/analytics/retention", "read-only"),
  getPrometheusMetrics: operation("GET", "/metrics/prometheus", "public"),
  getBuffers: operation("GET", "/api/v1/status/buffers", "read-only"),
  setMaintenance: operation("POST", "/api/v1/system/maintenance", "admin"),
  setPopMaintenance: operation("POST", "/api/v1/system/maintenance/pop", "admin"),
};
