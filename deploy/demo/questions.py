"""The chat questions of the demo: one short, one with history, one long enough for several cache blocks."""

from collections.abc import Mapping, Sequence

__all__ = ["QUESTIONS", "WARM_UP"]

Messages = Sequence[Mapping[str, str]]

_LONG = (
    "You are reading the terms of a licence aloud to a friend who writes software. Say what each party may do "
    "with the work, what must be kept in every copy, who carries the risk when something breaks, and what ends "
    "the agreement. Then say how a contribution is treated when nothing else was agreed."
)


def _user(text: str) -> Mapping[str, str]:
    return {"role": "user", "content": text}


WARM_UP: Messages = (_user("Are you there?"),)

QUESTIONS: tuple[Messages, ...] = (
    (_user("Hello! Who are you?"),),
    (_user("Which rights does a licence grant to a reader?"),),
    (
        {"role": "system", "content": "Answer in one sentence."},
        _user("What is a derivative work?"),
        {"role": "assistant", "content": "A work that is based on another one."},
        _user("And what is a contribution?"),
    ),
    (_user(_LONG),),
)
