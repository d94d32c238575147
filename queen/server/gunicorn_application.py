"""gunicorn as ``queen serve`` starts it: ``python -m queen.server.gunicorn_application``."""

import os

from gunicorn.app.wsgiapp import WSGIApplication


class GunicornApplication(WSGIApplication):  # type: ignore[misc]
    """gunicorn, except that it does not look for modules in the current folder first.

    There may be another ``queen`` in it, such as the source of another version.
    """

    def chdir(self) -> None:
        """Changes the folder, and leaves the import path alone."""
        os.chdir(self.cfg.chdir)


if __name__ == "__main__":
    GunicornApplication("%(prog)s [OPTIONS] [APP_MODULE]").run()
