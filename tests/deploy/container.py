"""Run programs as a container would: another root, read-only but for some places, an ordinary user, no privileges.

It takes a Linux, root and the right to mount inside a mount namespace of one's own; whoever lacks one of these skips.
Nothing is mounted outside that namespace, so nothing is left behind when the program ends.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from tests.deploy.tools import REPOSITORY

WRITABLE = {"/var/lib/lakesweep": "mode=0700,uid=10001,gid=10001", "/tmp": "mode=1777"}
"""Where the image writes to, as volumes of its user."""

_SCRIPT = """
set -euo pipefail
root=$1 lower=$2 user=$3 directory=$4; shift 4
if [ -n "$lower" ]; then
    mkdir -p "$root/upper" "$root/work" "$root/merged"
    mount -t overlay overlay -o "lowerdir=$lower,upperdir=$root/upper,workdir=$root/work" "$root/merged"
    root=$root/merged
else
    mount --bind "$root" "$root"
fi
while [ "$1" != -- ]; do
    case $1 in
        bind | share)
            if [ -d "$2" ]; then mkdir -p "$root$3"; fi
            if [ ! -e "$root$3" ]; then mkdir -p "$(dirname "$root$3")"; touch "$root$3"; fi
            mount --bind "$2" "$root$3"
            if [ "$1" = bind ]; then mount -o remount,ro,bind "$root$3"; fi
            shift 3 ;;
        tmpfs) mkdir -p "$root$2"; mount -t tmpfs -o "$3" tmpfs "$root$2"; shift 3 ;;
        dev) mkdir -p "$root/dev"; mount --rbind /dev "$root/dev"; shift ;;
        proc) mkdir -p "$root/proc"; mount -t proc proc "$root/proc"; shift ;;
        seal) mount -o remount,ro,bind "$root" || mount -o remount,ro "$root"; shift ;;
    esac
done
shift
exec setpriv --no-new-privs chroot --userspec="$user" --groups= "$root" env --chdir="$directory" -i "$@"
"""


@cache
def need_mounts() -> None:
    """Skip where no file system can be mounted in a namespace of one's own."""
    programs = ("unshare", "setpriv", "chroot", "mount")
    missing = [name for name in programs if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"a read-only root needs root and {', '.join(missing or programs)}")
    tried = subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False
    )
    if tried.returncode:
        pytest.skip(f"a read-only root needs mounts: {tried.stderr.decode().strip()}")


def need_overlays(directory: Path) -> None:
    """Skip where a directory cannot be laid over another: not every file system lets that happen."""
    need_mounts()
    lower, upper, work, merged = (directory / name for name in ("lower", "upper", "work", "merged"))
    for place in (lower, upper, work, merged):
        place.mkdir(parents=True)
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    command = ["unshare", "--mount", "mount", "-t", "overlay", "overlay", "-o", options, str(merged)]
    tried = subprocess.run(command, capture_output=True, check=False)
    if tried.returncode:
        pytest.skip(f"an image's layers need overlays: {tried.stderr.decode().strip()}")


@dataclass(frozen=True, kw_only=True)
class Container:
    """A root and what is mounted in it. With `lower` the root holds what differs from that directory."""

    root: Path
    lower: Path | None = None
    binds: Mapping[Path, str] = field(default_factory=dict)
    """What else is seen there, read-only: by source, the place."""
    shared: Mapping[Path, str] = field(default_factory=dict)
    """The same, writable."""
    tmpfs: Mapping[str, str] = field(default_factory=dict)
    """Writable places, with mount options."""
    read_only: bool = True

    def command(
        self, *arguments: str, environment: Mapping[str, str], user: tuple[int, int] = (0, 0), directory: str = "/"
    ) -> list[str]:
        """What to start in its place. Killed with its parent, and all its children with it."""
        mounts = [part for place, options in self.tmpfs.items() for part in ("tmpfs", place, options)]
        mounts += [part for source, place in self.binds.items() for part in ("bind", str(source), place)]
        mounts += [part for source, place in self.shared.items() for part in ("share", str(source), place)]
        mounts += ["dev", "proc"]
        mounts += ["seal"] if self.read_only else []
        variables = [f"{name}={value}" for name, value in environment.items()]
        place = (str(self.root), str(self.lower or ""), ":".join(map(str, user)), directory)
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        return [*unshare, "bash", "-c", _SCRIPT, "container", *place, *mounts, "--", *variables, *arguments]

    def run(self, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
        """A finished program with its output."""
        command = self.command(*arguments, **options)  # type: ignore[arg-type]
        return subprocess.run(command, capture_output=True, text=True, check=False)


def on_this_machine(directory: Path) -> Container:
    """Like a container of the image, with this machine's system and the environment of the tests in it."""
    need_mounts()
    root = directory / "root"
    root.mkdir()
    users = directory / "passwd"  # Java wants to know its user's name
    users.write_text("lakesweep:x:10001:10001::/var/lib/lakesweep:/usr/sbin/nologin\n")
    places = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", sys.base_prefix, sys.prefix, str(REPOSITORY)]
    as_in_the_image = {
        users: "/etc/passwd",
        Path(sys.prefix): "/opt/lakesweep",
        REPOSITORY / "deploy" / "image" / "entrypoint.sh": "/opt/entrypoint.sh",
    }
    return Container(root=root, binds=existing(places) | as_in_the_image, tmpfs=WRITABLE)


def existing(paths: Sequence[str]) -> dict[Path, str]:
    """Those of this machine's places that there are, each at its own place."""
    return {Path(path): path for path in paths if Path(path).exists()}
