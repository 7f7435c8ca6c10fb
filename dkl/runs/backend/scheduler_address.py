"""Address of a running scheduler, and the certificates for connecting to it."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from dkl.errors import InputError
from dkl.io.paths import as_path, require_file

if TYPE_CHECKING:
    from distributed import Security

TLS = "distributed.comm.tls in Dask's configuration"


@dataclass(frozen=True)
class Certificates:
    """PEM files: the authority that the cluster's certificates are signed by, and our own certificate with its key."""

    tls_ca: str
    tls_cert: str
    tls_key: str

    @classmethod
    def of(cls, given: Mapping[str, str | None]) -> Certificates | None:
        """Return the files of --tls-ca, --tls-cert and --tls-key; None if none is given.
        InputError for some of them, or no file."""
        paths = {field.name: given.get(field.name) for field in fields(cls)}
        missing = [flag(name) for name, path in paths.items() if path is None]
        if len(missing) == len(paths):
            return None
        if missing:
            raise InputError("certificates go together", where="--tls-ca, --tls-cert, --tls-key", wanted=missing[0])
        found = {name: as_path(path, flag(name)).absolute() for name, path in paths.items()}
        for path in found.values():
            require_file(path)
        return cls(**{name: str(path) for name, path in found.items()})

    def options(self) -> list[str]:
        """Return the options by which a command uses these certificates."""
        return [word for name, path in asdict(self).items() for word in (flag(name), path)]

    def security(self) -> Security:
        """Return the security of a Client: these files, and no connection without them."""
        from distributed import Security

        return Security(
            require_encryption=True,
            tls_ca_file=self.tls_ca,
            tls_client_cert=self.tls_cert,
            tls_client_key=self.tls_key,
        )


def flag(name: str) -> str:
    """Return the option of a name.

    >>> flag("tls_ca")
    '--tls-ca'
    """
    return f"--{name.replace('_', '-')}"


def address_in(file: Path, seconds: float = 0.0) -> str:
    """Return the address in a file of `dask scheduler --scheduler-file`, waiting `seconds` for it."""
    until = time.monotonic() + seconds
    while not _is_written(file) and time.monotonic() < until:
        time.sleep(0.1)
    require_file(file)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError("cannot be read as JSON", where=str(file), got=error) from error
    if not isinstance(content, dict) or not isinstance(content.get("address"), str):
        raise InputError("not a scheduler's file", where=str(file), wanted='an "address" in it')
    return str(content["address"])


def _is_written(file: Path) -> bool:
    """Return whether the file has anything to read, or to refuse."""
    try:
        return file.stat().st_size > 0
    except FileNotFoundError:
        return False
    except OSError:
        return True


def check_address(address: str, insecure: bool, where: str, certificates: Certificates | None = None) -> None:
    """Raise InputError for an invalid address, plain tcp:// to another machine, or wrong certificates."""
    match = re.fullmatch(r"(tcp|tls)://(\[[0-9a-fA-F:]+\]|[\w.-]+):(\d{1,5})", address)
    if match is None or not 0 < int(match[3]) < 65536:
        wanted = "tls://host:port, or tcp://127.0.0.1:port"
        raise InputError("not a scheduler's address", where=where, got=repr(address), wanted=wanted)
    if match[1] == "tls":
        _check_certificates(address, where, certificates)
    elif certificates is not None:
        raise InputError("certificates for a connection without", where=where, got=address, wanted="tls://")
    elif not insecure and not _is_loopback(match[2].strip("[]")):
        raise InputError(
            "plain tcp:// to another machine: whoever reaches that port can run code as you",
            where=where,
            got=address,
            wanted="tls://",
            remedy="set up TLS (see cluster/README.md), or say --insecure",
        )


def _check_certificates(address: str, where: str, certificates: Certificates | None) -> None:
    """Raise InputError if neither options nor Dask's configuration name certificates that can be read."""
    from distributed import Security

    source = TLS if certificates is None else "--tls-ca, --tls-cert, --tls-key"
    if certificates is None:
        _expand_home()
    try:
        security = Security() if certificates is None else certificates.security()
        context = security.get_connection_args("client")["ssl_context"]
    except (OSError, ValueError) as error:  # SSLError is an OSError
        remedy = "mend the paths or the files there"
        raise InputError("certificates that cannot be read", where=source, got=error, remedy=remedy) from error
    if context is None:
        wanted = f"--tls-ca, --tls-cert and --tls-key, or {TLS}: ca-file, client.cert and client.key"
        remedy = "name your certificates there, as cluster/README.md shows"
        raise InputError("tls:// without certificates", where=where, got=address, wanted=wanted, remedy=remedy)


def _expand_home() -> None:
    """Expand `~` in paths of Dask's configuration, which Dask opens as written."""
    import dask

    tls = dask.config.get("distributed.comm.tls", {})
    for part in (tls, *(tls.get(role) or {} for role in ("scheduler", "worker", "client"))):
        for name, path in part.items():
            if isinstance(path, str) and path.startswith("~"):
                part[name] = os.path.expanduser(path)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
