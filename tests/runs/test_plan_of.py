"""A refusal names a limit that the plan is accepted at: stages that do not fit hide those after them."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from dkl.errors import MemoryBudgetError
from dkl.resources import format_bytes, parse_bytes
from dkl.runs.estimate import plan_of


@dataclass(frozen=True)
class Limited:
    """Settings with a limit."""

    memory_limit: int | None

    def changed(self, memory_limit):
        return Limited(memory_limit)


def planner(*stages, wanted="at least {}"):
    """A planner of stages, each of which takes bytes that depend on the limit."""

    def plan(inputs, settings, session):
        for name, needed in enumerate(stages):
            size = needed(settings.memory_limit) if callable(needed) else needed
            if settings.memory_limit is not None and size > settings.memory_limit:
                got, least = format_bytes(settings.memory_limit), wanted.format(format_bytes(size))
                raise MemoryBudgetError(f"stage {name} does not fit", where="memory plan", got=got, wanted=least)
        return "planned"

    return SimpleNamespace(plan=plan)


def refusal(made, limit):
    with pytest.raises(MemoryBudgetError) as caught:
        plan_of(made, None, Limited(limit), None)
    return caught.value


@pytest.mark.parametrize(
    "stages",
    [
        (400_000_000, 626_000_000),  # a later one takes more
        (400_400_000,),  # named by three digits, which are less
        (1_004_999_000,),
        (300_000_000, lambda limit: 500_000_000 + limit // 10),  # one takes more under a higher limit
    ],
)
def test_the_limit_that_is_named_is_accepted(stages):
    made = planner(*stages)
    error = refusal(made, 100_000_000)
    assert error.what == "stage 0 does not fit" and error.got == "100 MB"
    least = parse_bytes(error.wanted.removeprefix("at least "))
    assert plan_of(made, None, Limited(least), None) == "planned"
    assert refusal(made, int(0.98 * least))


def test_a_refusal_that_names_no_limit_stays_as_it_is():
    assert refusal(planner(300, wanted="at most {}"), 100).wanted == "at most 300 B"
    endless = refusal(planner(lambda limit: 2 * limit), 100)
    assert endless.wanted == "at least 200 B"


def test_what_fits_is_the_plan():
    assert plan_of(planner(300), None, Limited(None), None) == "planned"
