"""Which tool follows which within a session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

START = ""
"""What stands before the first tool of a session."""


def tool_steps(answers: Iterable[Sequence[str]]) -> Iterator[list[tuple[str, str]]]:
    """Per answer of a session, in order, its steps (from tool, to tool): the chain is all called tools one after the other, those
    of one answer as they are listed."""
    last = START
    for tools in answers:
        steps = list(zip([last, *tools], tools, strict=False))
        last = tools[-1] if tools else last
        yield steps
