"""Errors of the data source; each text says what to do."""


class SourceError(Exception):
    """The log cannot be read or written as asked; the text is for people."""


class OptionError(SourceError):
    """An option, a filter, a column or a mode is wrong."""


class DataLossError(SourceError):
    """Messages that were to be read are gone."""


class UnreachableError(SourceError):
    """PostgreSQL or the server cannot be reached, or refuses."""
