"""The log of Queen as a data source of Spark. Spark finds the class by the names of package and class."""

from .source import QueenSource as DefaultSource

__all__ = ["DefaultSource"]
