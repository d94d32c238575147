"""The interface of simple-mq: ``/api/queues`` and ``/actuator``."""
