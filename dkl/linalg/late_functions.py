"""Functions that Numba compiles, in modules that do not import Numba: it is imported when one of them is first called.

Numba takes longer to import than a fitted learner to read, and a learner that is loaded may never be applied to rows. Compiling takes
seconds at the first use on a machine; what is compiled is kept in Numba's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, update_wrapper
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

if TYPE_CHECKING:
    from numba.core.event import Event

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)


class LateFunction(partial[Any]):
    """Function that is made at its first call, and pickled by its name.

    It is a partial of no arguments, whose function is replaced once: later calls are passed on in C, without a frame of Python.
    """

    __module__: str
    __qualname__: str
    _make: Callable[[], Function]

    def __new__(cls, make: Callable[[], Function], module: str, name: str) -> Self:
        """Return the function `name` of `module`, which `make` will return."""
        late = super().__new__(cls, _first_call)
        late._make, late.__module__, late.__qualname__ = make, module, name
        late._pass_calls_to(MethodType(_first_call, late))
        return late

    def resolve(self) -> Any:
        """Return the function itself, made if it is not yet; threads that make it at the same time get the same one."""
        known = vars(self)
        if "_function" not in known:
            # No lock, which a finalizer could wait for: one of several is kept, and the others are never called or compiled.
            self._pass_calls_to(known.setdefault("_function", known["_make"]()))
        return known["_function"]

    def _pass_calls_to(self, function: Function) -> None:
        """Make `function` answer all calls from now on."""
        self.__setstate__((function, (), {}, vars(self)))  # type: ignore[attr-defined]

    def __reduce__(self) -> str:
        return self.__qualname__


def _first_call(late: LateFunction, /, *args: Any, **kwargs: Any) -> Any:
    return late.resolve()(*args, **kwargs)


def njit(**options: Any) -> Callable[[F], F]:
    """Return a decorator like `numba.njit(**options)` whose functions import Numba when they are first called."""

    def late(function: F) -> F:
        def make() -> Function:
            import numba

            return cast(Function, numba.njit(**options)(_resolved(cast(FunctionType, function))))

        return cast(F, update_wrapper(LateFunction(make, function.__module__, function.__qualname__), function))

    return late


def _resolved(function: FunctionType) -> FunctionType:
    """Return a copy of `function` that Numba can compile, in whose globals late functions are replaced by what they resolve to."""
    names = dict(function.__globals__)
    for name in _names(function.__code__):
        if isinstance(names.get(name), LateFunction):
            names[name] = names[name].resolve()
    copy = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    update_wrapper(copy, function)
    return copy


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names of globals and attributes in a function's code, and in those defined within."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


@contextmanager
def compiles(started: Callable[[str], None]) -> Iterator[None]:
    """Call `started` with the name of each function of `dkl` whose compilation starts meanwhile, on any thread."""
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, event: Event) -> None:
            function = event.data["dispatcher"].py_func
            if function.__module__.startswith("dkl."):
                started(f"{function.__module__}.{function.__name__}")

        def on_end(self, event: Event) -> None:
            pass

    # Not triggered where the compiled function is loaded from the cache.
    kind, listener = "numba:compile", Listener()
    event.register(kind, listener)
    try:
        yield
    finally:
        event.unregister(kind, listener)
