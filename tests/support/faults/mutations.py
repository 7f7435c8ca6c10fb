"""Files changed at random, by seeds: bytes of any file, numbers of text and headers, members of archives, files of folders."""

from __future__ import annotations

import io
import json
import random
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dkl.stores.seals import read_json, write_json

NUMBER = re.compile(rb"-?\d+(\.\d*)?([eE][-+]?\d+)?")
WORDS = (
    *(b"-1", b"0", b"1", b"nan", b"inf", b"-inf", b"x", b"", b"1e400", b"1e308", b"1e-320", b"2147483648"),
    *(b"1" * 400, b"600000000", b"9223372036854775808", b"0x10", b"True", b"None", b"\xff\xfe", b"1_0", b'"', b"'"),
)
VALUES: tuple[Any, ...] = (
    *(None, [], {}, "x", "", -1, 0, 1, 2, 0.5, -0.5, 1e308, 2**63, 10**400, True, False, [[1]], {"a": 1}, "../../x"),
    *(float("nan"), float("inf"), [1, 2], "1", "nan"),
)


# -- bytes --------------------------------------------------------------------------------------------------------------


def flipped(content: bytearray, rng: random.Random) -> bytearray:
    for _ in range(rng.choice((1, 1, 1, 8))):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return content


def truncated(content: bytearray, rng: random.Random) -> bytearray:
    return content[: rng.randrange(len(content))]


def extended(content: bytearray, rng: random.Random) -> bytearray:
    return content + bytes(rng.randrange(256) for _ in range(rng.choice((1, 8, 100))))


def zeroed(content: bytearray, rng: random.Random) -> bytearray:
    at, count = rng.randrange(len(content)), rng.choice((1, 4, 64))
    content[at : at + count] = bytes(len(content[at : at + count]))
    return content


def swapped(content: bytearray, rng: random.Random) -> bytearray:
    size = rng.randint(1, max(1, len(content) // 4))
    one, other = sorted(rng.randrange(len(content)) for _ in range(2))
    parts = (content[:one], content[other : other + size], content[one:other], content[one : one + size])
    return bytearray(b"".join(bytes(part) for part in parts)) + content[other + size :]


def repeated(content: bytearray, rng: random.Random) -> bytearray:
    """A line twice, or many times; gone; or in another's place."""
    lines = content.split(b"\n")
    at = rng.randrange(len(lines))
    lines[at : at + 1] = [lines[at]] * rng.choice((0, 2, 50)) or [lines[rng.randrange(len(lines))]]
    return bytearray(b"\n".join(lines))


def renumbered(content: bytearray, rng: random.Random) -> bytearray:
    """A number is another word; in a .npy header with spaces in place of what it is shorter."""
    found = list(NUMBER.finditer(bytes(content[:4096])))
    if not found:
        return flipped(content, rng)
    place, word = rng.choice(found), rng.choice(WORDS)
    return content[: place.start()] + word.ljust(place.end() - place.start()) + content[place.end() :]


BYTES: tuple[Callable[[bytearray, random.Random], bytearray], ...] = (
    *(flipped, truncated, extended, zeroed, swapped, repeated, renumbered, renumbered),
)


def mutate_bytes(content: bytes, rng: random.Random) -> bytes:
    return bytes(rng.choice(BYTES)(bytearray(content or b"0"), rng))


# -- files --------------------------------------------------------------------------------------------------------------


def mutate(path: Path, rng: random.Random) -> None:
    """One change of a file or a folder of files; of an archive often of what is in it, well packed again."""
    if path.is_dir():
        _mutate_folder(path, rng)
    elif zipfile.is_zipfile(path) and rng.random() < 0.7:
        path.write_bytes(_mutate_archive(path, rng))
    else:
        path.write_bytes(mutate_bytes(path.read_bytes(), rng))


def _mutate_archive(path: Path, rng: random.Random) -> bytes:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    chosen = rng.choice(sorted(members))
    way = rng.randrange(8)
    if way == 0:
        members[rng.choice(("x.npy", "X", "../X.npy", "y.npy"))] = members.pop(chosen)
    elif way == 1 and len(members) > 1:
        other = rng.choice(sorted(members.keys() - {chosen}))
        members[chosen], members[other] = members[other], members[chosen]
    else:
        header = rng.random() < 0.5  # the first line of a .npy file, where it lies
        content, cut = members[chosen], 128 if header else None
        members[chosen] = mutate_bytes(content[:cut], rng) + (content[cut:] if cut else b"")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return packed.getvalue()


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _mutate_folder(folder: Path, rng: random.Random) -> None:
    files = files_in(folder)
    chosen, way = rng.choice(files), rng.randrange(6)
    if way == 0:
        chosen.unlink()
    elif way == 1:
        other = rng.choice(files)
        one = chosen.read_bytes()
        chosen.write_bytes(other.read_bytes()), other.write_bytes(one)
    elif way == 2:
        chosen.unlink()
        chosen.mkdir()
    elif way == 3 and chosen.suffix == ".json":
        reworded_json(chosen, rng, sealed=False)
    else:
        chosen.write_bytes(mutate_bytes(chosen.read_bytes(), rng))


# -- JSON ---------------------------------------------------------------------------------------------------------------


def changed(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The same with another value in one place."""
    copy = json.loads(json.dumps(content))
    part = copy
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return copy


def reworded_json(file: Path, rng: random.Random, *, sealed: bool = True) -> str:
    """A value is another, in JSON or in a line of a log, and well sealed again; what was changed."""
    if file.suffix == ".jsonl":
        lines = file.read_text().splitlines() or ["{}"]
        at = rng.randrange(max(0, len(lines) - 6), len(lines))  # what was last is what counts
        content, where, value = _reworded(json.loads(lines[at]), rng)
        lines[at] = json.dumps(content)
        file.write_text("\n".join(lines) + "\n")
        return f"line {at} {where} = {value!r:.40}"
    content, where, value = _reworded(read_json(file), rng)
    if sealed:
        write_json(file, content)
    else:
        file.write_text(json.dumps(content))
    return f"{where} = {value!r:.40}"


def _reworded(content: Any, rng: random.Random) -> tuple[Any, Any, Any]:
    """Where: from the top down, each key as likely as its neighbors, so that long lists do not take all."""
    where: tuple[Any, ...] = ()
    part = content
    while isinstance(part, (dict, list)) and part and (not where or rng.random() < 0.9):
        key = rng.choice(list(part) if isinstance(part, dict) else range(len(part)))
        where, part = (*where, key), part[key]
    value = rng.choice(VALUES)
    return (changed(content, where, value) if where else {"x": 1}), where, value


def content(path: Path) -> dict[str, bytes]:
    """Return the bytes of a file, or of the files of a folder by their names; {} where nothing is."""
    files = files_in(path) if path.is_dir() else [path] if path.is_file() else []
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def copied(source: Path, target: Path) -> Path:
    """In place of what stands there."""
    if target.is_dir():
        shutil.rmtree(target)
    target.unlink(missing_ok=True)
    return Path(shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target))
