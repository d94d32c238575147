"""Structured logs: one JSON object per line on standard error."""

import json
import logging
import logging.config
from datetime import UTC, datetime
from typing import Any

# Attributes of every record; all others were given as ``extra`` and become fields of the line.
_COMMON = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


class JsonFormatter(logging.Formatter):
    """Renders a record as ``time``, ``level``, ``logger``, ``message``, ``pid``, its extra fields, and ``error``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the message contains."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process,
            **{name: value for name, value in vars(record).items() if name not in _COMMON},
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def configuration(level: str) -> dict[str, Any]:
    """The configuration for ``logging.config`` and gunicorn's ``logconfig_dict``."""
    threshold = level.upper()
    ours = {"level": threshold, "handlers": ["stderr"], "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": JsonFormatter}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json", "stream": "ext://sys.stderr"}},
        "root": {"level": "WARNING", "handlers": ["stderr"]},
        "loggers": {"queen": ours, "gunicorn.error": ours, "gunicorn.access": ours},
    }


def configure(level: str) -> None:
    """Configures logging of this process."""
    logging.config.dictConfig(configuration(level))
