"""What help says of options: each says what happens where it is given."""

import click
import pytest

from dkl.cli.main import dkl
from dkl.estimators.base.rules import Flag
from dkl.estimators.base.settings import declared
from dkl.runs import registry

NEGATED = ("Do not ", "Fit no ", "Take components about 0, not ")
"""How the help of an option begins that turns off what is on by default."""


def commands(command, name, parent=None):
    """Yield (path, parameters) of every command below."""
    context = click.Context(command, info_name=name, parent=parent, **command.context_settings)
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            yield from commands(command.get_command(context, child), child, context)
    else:
        yield context.command_path, command.get_params(context)


COMMANDS = dict(commands(dkl, "dkl"))


@pytest.mark.parametrize("path", COMMANDS)
def test_a_flag_that_negates_says_so_in_its_help(path):
    for option in COMMANDS[path]:
        if getattr(option, "is_flag", False) and not option.secondary_opts:
            assert option.help.startswith(NEGATED) == (option.flag_value is False), (option.opts, option.help)
            assert not option.help.startswith("Whether"), option.opts


@pytest.mark.parametrize("task", registry.TASKS)
def test_what_is_on_by_default_is_turned_off_by_an_option_of_its_own_help(task):
    shown = {option.name: option for option in COMMANDS[f"dkl fit {task}"]}
    for name, known in declared(registry.declaration(task).settings).items():
        if isinstance(known.rule, Flag) and known.has_option:
            assert (known.off is not None) == (known.default is True), name
            assert shown[name].help == (known.off.help if known.off else known.help)
