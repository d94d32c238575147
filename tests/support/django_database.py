"""Django on the database of a server. A process configures Django once, for all guides that it runs."""

from importlib import import_module


def use(dsn: str) -> None:
    """Makes a database the default one."""
    conninfo = import_module("psycopg.conninfo").conninfo_to_dict(dsn)
    place = {key.upper(): conninfo[key] for key in ("host", "port", "user", "password") if key in conninfo}
    database = {"ENGINE": "django.db.backends.postgresql", "NAME": conninfo["dbname"], **place}
    settings = import_module("django.conf").settings
    if not settings.configured:
        settings.configure(DATABASES={"default": database})
        import_module("django").setup()
    # Connections of other threads are made from these.
    import_module("django.db").connections.settings["default"].update(database)
