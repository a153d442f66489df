"""Shows both tiers' answers side by side while they arrive.

Invariant: on a terminal it moves; elsewhere each question leaves its finished picture once.
"""

from types import TracebackType

from rich.columns import Columns
from rich.console import Console, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from deploy.demo.ask import Answer
from deploy.demo.questions import Messages

__all__ = ["TIERS", "Screen"]

TIERS = ("speed", "native")
_STYLES = {"speed": "green", "native": "blue"}
_LINES = 9


class Screen:
    """One question and what each tier has said so far. A context manager."""

    def __init__(self, console: Console, question: Messages) -> None:
        self._console = console
        self._question = question[-1]["content"]
        self._answers = {tier: Answer(tier=tier) for tier in TIERS}
        self._live = Live(console=console, refresh_per_second=20, get_renderable=self._picture)
        self._moves = console.is_terminal

    def __enter__(self) -> "Screen":
        self._console.rule(Text(_short(self._question, 70)), style="dim")
        if self._moves:
            self._live.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._moves:
            self._live.stop()
        else:
            self._console.print(self._picture())

    def seen(self, answer: Answer) -> None:
        """An answer has grown."""
        self._answers[answer.tier] = answer

    def _picture(self) -> RenderableType:
        width = max(20, (self._console.width - 1) // 2)
        return Columns([self._panel(self._answers[tier], width) for tier in TIERS], width=width, padding=0)

    def _panel(self, answer: Answer, width: int) -> Panel:
        text = Text(_printable(answer.text)[-_LINES * (width - 4) :])
        foot = f"{len(answer.ids)} tokens, {answer.last_s * 1000:.0f} ms"
        style = _STYLES[answer.tier]
        return Panel(text, title=f"{answer.tier} tier", subtitle=foot, height=_LINES + 2, border_style=style)


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."


def _printable(text: str) -> str:
    """Random weights write any byte; a terminal must not obey them."""
    return "".join(sign if sign.isprintable() else " " for sign in text)
