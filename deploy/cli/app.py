"""Builds the command line for one call and runs it.

Invariant: errors of ours end in one line on stderr and a status: 2 for a value that cannot be used, 1 for
the rest.
"""

import sys
from collections.abc import Callable, Sequence

import typer
from rich.console import Console

from deploy.cli.commands import COMMANDS, GROUPS, Command
from speedtier import __version__
from speedtier.errors import ConfigError, SpeedtierError

__all__ = ["build", "main"]


def build(arguments: Sequence[str]) -> typer.Typer:
    """The application with the asked command's options; all others are there by name and help only."""
    app = typer.Typer(
        name="speedtier",
        help="A latency tier for the vLLM you already run.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(_version_option)
    groups: dict[str, typer.Typer] = {}
    for command in COMMANDS:
        target = app
        if len(command.path) == 2:
            name = command.path[0]
            if name not in groups:
                groups[name] = typer.Typer(no_args_is_help=True)
                app.add_typer(groups[name], name=name, help=GROUPS[name])
            target = groups[name]
        asked = tuple(arguments[: len(command.path)]) == command.path
        target.command(command.path[-1], help=command.help)(command.load() if asked else _named(command))
    return app


def _named(command: Command) -> Callable[..., None]:
    def stub() -> None:
        raise ConfigError(f"put options after the command: speedtier {' '.join(command.path)} --option ...")

    return stub


def _show_version(asked: bool) -> None:
    if asked:
        print(__version__)
        raise typer.Exit


def _version_option(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Show it and exit."),
) -> None:
    pass


def main() -> None:
    """Entry point of the `speedtier` script."""
    try:
        build(sys.argv[1:])()
    except ConfigError as error:
        _fail(error, 2)
    except SpeedtierError as error:
        _fail(error, 1)
    except KeyboardInterrupt:
        sys.exit(130)


def _fail(error: SpeedtierError, status: int) -> None:
    Console(stderr=True, soft_wrap=True).print(f"speedtier: {error}", markup=False, highlight=False)
    sys.exit(status)
