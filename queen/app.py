"""The ASGI application as gunicorn loads it: ``queen.app:app``."""

from queen.config import from_environment
from queen.main import create

app = create(from_environment())
