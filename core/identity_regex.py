"""Regular expressions a person may type into a rule: the part of Python's language in which no value can take long.

Backtracking explodes when parts of a pattern can share the same text in many ways. Only single characters may repeat here (a
group may be optional), and the number of ways in which a pattern can lay itself over a value is bounded before it is accepted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from core.errors import BadInput

MAX_PATTERN = 200
MAX_VALUE = 200
"""Characters of a value that patterns are tried on; a longer value matches no pattern."""
MAX_WAYS = 50_000
"""Two free repeats over the longest value; a few thousand steps each microsecond-cheap."""
_ESCAPED_CLASSES = "dDwWsS"
_QUANTIFIER = re.compile(r"[*+?]|\{(\d{1,3})(?:(,)(\d{0,3}))?\}")
_GROUP = re.compile(r"\((?!\?)|\(\?:|\(\?P<[a-z_]\w{0,30}>")
HINT = "use literals, ., [...], \\d \\w \\s, ? * + {m,n} on single characters, (...), (?P<name>...) and |"


@dataclass(frozen=True, slots=True)
class _One:
    """One character, ``least`` to ``most`` times (None: as often as it fits). ``literal`` is '' for a class of characters."""

    text: str
    literal: str
    least: int = 1
    most: int | None = 1

    def can_be(self, character: str) -> bool:
        return re.fullmatch(self.text, character) is not None


@dataclass(frozen=True, slots=True)
class _Choice:
    options: tuple[tuple[_One | _Choice, ...], ...]
    is_optional: bool


_Items = list[_One | _Choice]


def safe_pattern(text: str, field: str) -> re.Pattern[str]:
    """The compiled pattern, to be used with ``fullmatch``. Raises BadInput naming ``field`` for what is too long, not in the
    language above, or may take too many steps."""
    if not 0 < len(text) <= MAX_PATTERN:
        raise BadInput(f"a pattern has 1 to {MAX_PATTERN} characters", field=field, value=text)
    body = text.removeprefix("^")
    body = body[:-1] if body.endswith("$") and not body.endswith("\\$") else body
    items = _Reader(body, field).whole()
    if _ways(items, is_end=True) > MAX_WAYS:
        hint = "let a repeat exclude what follows it: ([^-]*)-([^-]*) instead of (.*)-(.*)"
        raise BadInput("parts of the pattern can share text in too many ways", field=field, value=text, hint=hint)
    try:
        return re.compile(body)
    except (re.error, OverflowError) as error:
        raise BadInput(f"is not a pattern: {error}", field=field, value=text, hint=HINT) from error


def _ways(items: _Items | tuple[_One | _Choice, ...], *, is_end: bool) -> int:
    """An upper bound of the ways the items can lie over one value.

    A repeat directly before a character it cannot hold, or before the end, has one length that can succeed: its other lengths
    fail at their first step, so they add steps and do not multiply them.
    """
    ways = 1
    for place, item in enumerate(items):
        follower = items[place + 1] if place + 1 < len(items) else None
        if isinstance(item, _Choice):
            ways *= sum(_ways(option, is_end=False) for option in item.options) + item.is_optional
        elif item.least != item.most and not _is_settled(item, follower, is_end):
            ways *= max(1, (MAX_VALUE if item.most is None else min(item.most, MAX_VALUE)) - item.least + 1)
    return ways


def _is_settled(item: _One, follower: _One | _Choice | None, is_end: bool) -> bool:
    if follower is None:
        return is_end
    return isinstance(follower, _One) and bool(follower.literal) and follower.least > 0 and not item.can_be(follower.literal)


class _Reader:
    def __init__(self, text: str, field: str) -> None:
        self._text, self._field, self._at = text, field, 0

    def whole(self) -> _Items:
        options = self._options()
        if self._at < len(self._text):
            raise self._fault("a ) without its (")
        return list(options[0]) if len(options) == 1 else [_Choice(options, False)]

    def _options(self) -> tuple[tuple[_One | _Choice, ...], ...]:
        options: list[tuple[_One | _Choice, ...]] = []
        items: _Items = []
        while self._at < len(self._text) and self._text[self._at] != ")":
            if self._text[self._at] == "|":
                self._at += 1
                options.append(tuple(items))
                items = []
            else:
                items += self._item()
        return (*options, tuple(items))

    def _item(self) -> _Items:
        if self._text[self._at] == "(":
            return self._group()
        one = self._one()
        least, most = self._quantifier()
        return [_One(one.text, one.literal, least, most)]

    def _group(self) -> _Items:
        opening = _GROUP.match(self._text, self._at)
        if opening is None:
            raise self._fault("a kind of group that is not taken")
        self._at = opening.end()
        options = self._options()
        if self._at >= len(self._text):
            raise self._fault("a ( without its )")
        self._at += 1
        bounds = self._quantifier()
        if bounds not in ((1, 1), (0, 1)):
            raise self._fault("a group may be optional (?), not repeated")
        if bounds == (1, 1) and len(options) == 1:
            return list(options[0])
        return [_Choice(options, bounds == (0, 1))]

    def _one(self) -> _One:
        letter, start = self._text[self._at], self._at
        if letter == "[":
            return self._class(start)
        if letter == "\\":
            self._at += 2
            escaped = self._text[start + 1 : self._at]
            if escaped and escaped in _ESCAPED_CLASSES:
                return _One(f"\\{escaped}", "")
            if not escaped or escaped.isalnum() or not escaped.isprintable():
                raise self._fault(f"\\{escaped} is not taken")
            return _One(f"\\{escaped}", escaped)
        if letter in "*+?{}^$]" or not letter.isprintable():
            raise self._fault(f"{letter!r} must stand behind a backslash here")
        self._at += 1
        return _One(".", "") if letter == "." else _One(re.escape(letter), letter)

    def _class(self, start: int) -> _One:
        at = start + 1 + (self._text[start + 1 : start + 2] == "^")
        first = at
        while at < len(self._text) and (self._text[at] != "]" or at == first):
            if self._text[at] == "[" or self._text[at : at + 2] in ("--", "&&", "||", "~~"):
                raise self._fault("[, --, &&, || and ~~ in a class must stand behind a backslash")
            at += 2 if self._text[at] == "\\" else 1
        if at >= len(self._text):
            raise self._fault("a [ without its ]")
        self._at = at + 1
        text = self._text[start : self._at]
        try:
            re.compile(text)
        except re.error as error:
            raise self._fault(f"{text}: {error}") from error
        return _One(text, "")

    def _quantifier(self) -> tuple[int, int | None]:
        found = _QUANTIFIER.match(self._text, self._at)
        if found is None:
            return 1, 1
        self._at = found.end()
        if self._text[self._at : self._at + 1] in ("?", "+"):
            raise self._fault("lazy and possessive repeats are not taken")
        sign, least = found[0], found[1]
        if sign in ("*", "+"):
            return int(sign == "+"), None
        if sign == "?":
            return 0, 1
        if found[2] is None:
            return int(least), int(least)
        return int(least), int(found[3]) if found[3] else None

    def _fault(self, message: str) -> BadInput:
        return BadInput(message, field=self._field, value=self._text, hint=HINT)
