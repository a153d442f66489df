"""The same questions to both tiers, side by side, compared token by token.

Invariant: green means identical.
"""

from deploy.demo.ask import Answer, DemoFailed, ask
from deploy.demo.config import DemoConfig
from deploy.demo.report import Pair
from deploy.demo.show import demo

__all__ = ["Answer", "DemoConfig", "DemoFailed", "Pair", "ask", "demo"]
