"""What a source file imports, read from its text."""

import ast
import functools
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
BY_NAME = {"import_module", "__import__", "find_spec", "importorskip"}


@functools.cache
def imports_of(path: Path) -> list[tuple[int, str]]:
    """What `imports` finds in a file of the package, or of a folder beside it, read once for all rules that look at it."""
    parts = [*path.with_suffix("").relative_to(ROOT).parts]
    is_package = parts[-1] == "__init__"
    return list(imports(".".join(parts[:-1] if is_package else parts), nodes_of(path.read_text("utf-8")), is_package))


def nodes_of(source: str) -> list[ast.AST]:
    """All nodes of a file's syntax tree, for rules that look at each."""
    return list(ast.walk(ast.parse(source)))


def imports(module: str, nodes: Iterable[ast.AST], is_package: bool = False) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of everything that `module` imports, at its top or inside functions, or looks for by name."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")[: len(module.split(".")) - node.level + is_package]
                base = ".".join([*parents, base]).rstrip(".")
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and called(node) in BY_NAME and node.args:
            name = node.args[0]
            yield node.lineno, name.value if isinstance(name, ast.Constant) else "(a name made at run time)"


def dotted(node: ast.expr) -> str:
    """ "zarr.open_group" for the expression zarr.open_group; of what is no such name, its last part."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def called(node: ast.Call) -> str:
    """The last name of what is called: "open_group" for zarr.open_group(...)."""
    return getattr(node.func, "attr", getattr(node.func, "id", ""))
