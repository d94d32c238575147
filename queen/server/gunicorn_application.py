"""gunicorn for ``queen serve``: ``python -m queen.server.gunicorn_application``."""

import os

from gunicorn.app.wsgiapp import WSGIApplication


class GunicornApplication(WSGIApplication):  # type: ignore[misc]
    """gunicorn, but it does not import modules from the current folder first.

    The folder may have another ``queen``, such as the source of another version.
    """

    def chdir(self) -> None:
        """Changes the folder, but not the import path."""
        os.chdir(self.cfg.chdir)


if __name__ == "__main__":
    GunicornApplication("%(prog)s [OPTIONS] [APP_MODULE]").run()
