"""The interface of simple-mq: ``/api/queues`` and ``/actuator``. Error texts are those of the original."""
