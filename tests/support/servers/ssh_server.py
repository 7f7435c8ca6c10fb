"""The system's own openssh-server on 127.0.0.1: with keys and configuration of its own, at a high port, and no service of the system."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest
from patience import PATIENCE
from seaweed_server import free_ports

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin")
SSHD_CONFIG = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PrintMotd no
SetEnv {environment}
"""
SSH_CONFIG = """\
UserKnownHostsFile {folder}/known_hosts
StrictHostKeyChecking accept-new
IdentitiesOnly yes
HostName 127.0.0.1
Host alpha beta gamma
    IdentityFile {folder}/key
    Port {port}
Host away
    Port {closed}
Host stranger
    IdentityFile {folder}/other
    Port {port}
"""


class SshServer:
    """A server that is reached as alpha, beta and gamma by its `ssh`; as `away` nothing is, and `stranger` is not let in.

    ssh: a folder with `ssh` alone, which reads the configuration of this server and no other, for PATH. home: that of the sessions.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder, self.ssh, self.home = folder, folder / "bin", folder / "home"
        self._process: subprocess.Popen[bytes] | None = None
        port, closed = free_ports(2)
        for path in (self.ssh, self.home):
            path.mkdir()
        for name in ("host_key", "key", "other"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
        (self.ssh / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F "{folder}/ssh_config" "$@"\n')
        (self.ssh / "ssh").chmod(0o700)
        sessions = {**environment, "HOME": str(self.home), "PATH": f"{self.ssh}:/usr/bin:/bin"}
        given = {"folder": folder, "port": port, "closed": closed}
        words = " ".join(f'"{name}={value}"' for name, value in sessions.items())
        (folder / "sshd_config").write_text(SSHD_CONFIG.format(**given, environment=words))
        (folder / "ssh_config").write_text(SSH_CONFIG.format(**given))

    def start(self) -> None:
        """Start it, and wait until it lets in."""
        assert SSHD is not None
        command = [SSHD, "-D", "-e", "-f", str(self.folder / "sshd_config")]
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = monotonic() + PATIENCE
        while subprocess.run([self.ssh / "ssh", "alpha", "true"], capture_output=True).returncode:
            assert self._process.poll() is None and monotonic() < end, (self.folder / "log").read_text()
            sleep(0.05)

    def stop(self) -> None:
        """End it. Sessions that there are go on, as do those of a machine whose server restarts."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None


@contextmanager
def ssh_server(folder: Path, environment: Mapping[str, str]) -> Iterator[SshServer]:
    """A server, which ends with the block; a skip where openssh-server is missing. environment: of its sessions."""
    if SSHD is None or shutil.which("ssh") is None:
        pytest.skip("no openssh-server: apt-get install openssh-server openssh-client")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # of its own unprivileged process
    server = SshServer(folder, environment)
    try:
        server.start()
        yield server
    finally:
        server.stop()
