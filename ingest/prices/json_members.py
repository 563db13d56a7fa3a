"""Members of a JSON object one after another from a stream: price lists are hundreds of megabytes in one object."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TextIO

from core.errors import BadInput

CHUNK = 1 << 20
MEMBER_CHARACTERS = 32 << 20
"""The longest single value; more is no price list."""
_BLANK = " \t\r\n"


class JsonStream:
    """A cursor in the text. ``members`` reads an object; each value is either read (``value``) or gone into (``members``)."""

    def __init__(self, source: TextIO) -> None:
        self._source, self._text, self._at, self._ended = source, "", 0, False
        self._decoder = json.JSONDecoder()

    def members(self) -> Iterator[str]:
        """The keys of the object at the cursor; the caller must take each value before the next key. Raises BadInput."""
        self._expect("{")
        if self._peek() == "}":
            self._at += 1
            return
        while True:
            key = self.value()
            self._expect(":")
            yield key
            if self._next() == "}":
                return

    def value(self) -> Any:
        """The whole value at the cursor."""
        self._peek()
        while True:
            try:
                found, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._ended or not self._more():
                    raise BadInput("is no JSON, or is cut short", hint="download it again") from error
                continue
            if end == len(self._text) and not self._ended:  # a number may go on in the next piece
                self._more()
                continue
            self._at = end
            return found

    def _next(self) -> str:
        sign = self._peek()
        self._at += 1
        if sign not in ",}":
            raise BadInput("is no JSON, or is cut short", value=sign, hint="download it again")
        return sign

    def _expect(self, sign: str) -> None:
        if self._peek() != sign:
            raise BadInput(f"is no JSON: expected {sign!r}", value=self._text[self._at : self._at + 20], hint="download it again")
        self._at += 1

    def _peek(self) -> str:
        while True:
            while self._at < len(self._text) and self._text[self._at] in _BLANK:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                raise BadInput("is cut short", hint="download it again")

    def _more(self) -> bool:
        """Take another piece, letting go of what was read; False at the end."""
        piece = self._source.read(max(CHUNK, len(self._text) - self._at))
        self._ended = not piece
        self._text, self._at = self._text[self._at :] + piece, 0
        if len(self._text) > 2 * MEMBER_CHARACTERS:
            raise BadInput("holds a single value too long for a price list")
        return bool(piece)
