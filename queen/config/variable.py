"""How a setting is declared and read: a field of a frozen struct whose annotation names its environment variables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, Self, get_args, get_type_hints

import msgspec
from msgspec import Struct

from queen.core.errors import SettingError

_BOOLEANS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


class Form(NamedTuple):
    """A form of text: what it is in words, and its parser, which raises ValueError or KeyError for any other text."""

    words: str
    parse: Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Variable:
    """What the annotation of a field says about its setting.

    Attributes:
        names: the environment variables, separated by spaces; the first that is set wins.
        low: the least value of an integer.
        high: its largest value.
        form: the form of a text; by default the type of the field decides.
        secret: the value is not shown, not in errors either.
    """

    names: str
    low: int = 0
    high: int = 0
    form: Form | None = None
    secret: bool = False


class Setting(NamedTuple):
    """A field of an area, with what its type and its annotation say."""

    field: str
    names: Sequence[str]
    form: Form
    default: Any
    secret: bool


class Area(Struct, frozen=True, kw_only=True):
    """Settings that belong together."""

    def __repr__(self) -> str:
        shown = [f"{each.field}={getattr(self, each.field)!r}" for each in settings_of(type(self)) if not each.secret]
        return f"{type(self).__name__}({', '.join(shown)})"

    @classmethod
    def read(cls, environment: Mapping[str, str], base: Self) -> Self:
        """The values of the environment, and those of ``base`` for the rest.

        Raises:
            SettingError: a value is out of its range.
        """
        values = {}
        for setting in settings_of(cls):
            for name in [name for name in setting.names if name in environment][:1]:
                values[setting.field] = parse(name, environment[name], setting.form, secret=setting.secret)
        return msgspec.structs.replace(base, **values)


@cache
def settings_of(area: type[Area]) -> Sequence[Setting]:
    """The settings of an area, in the order of their declaration."""
    hints, found = get_type_hints(area, include_extras=True), []
    for field in msgspec.structs.fields(area):
        kind, variable = get_args(hints[field.name])
        form = variable.form or _form_of(kind, variable)
        found.append(Setting(field.name, variable.names.split(), form, field.default, variable.secret))
    return found


def _form_of(kind: type, variable: Variable) -> Form:
    if kind is int:
        return whole_number(variable.low, variable.high)
    if kind is bool:
        return Form("true or false", lambda text: _BOOLEANS[text.lower() or "false"])
    return Form("text", str) if kind is str else one_of(*get_args(kind))


def parse(name: str, text: str, form: Form, *, secret: bool = False) -> Any:  # noqa: ANN401 - any type
    """The value of a variable.

    Raises:
        SettingError: the text does not have the form.
    """
    try:
        return form.parse(text)
    except (ValueError, KeyError):
        raise SettingError(f"{name if secret else f'{name}={text!r}'} is not {form.words}") from None


def whole_number(low: int, high: int) -> Form:
    """The form of an integer."""

    def number(text: str) -> int:
        if not text.removeprefix("-").isdecimal() or not low <= int(text) <= high:
            raise ValueError
        return int(text)

    return Form(f"a whole number from {low} to {high}", number)


def one_of(*choices: str) -> Form:
    """The form of a choice."""
    return Form("one of: " + ", ".join(map(repr, choices)), {choice: choice for choice in choices}.__getitem__)
