"""Walks and deletes when the system's own calls fail, which no file system here can be made to do: they are
replaced."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SHIM = r"""
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int mode(const char *name) { const char *m = getenv("SHIM"); return m && !strcmp(m, name); }

struct dirent64 *readdir64(DIR *directory) {
    struct dirent64 *(*real)(DIR *) = dlsym(RTLD_NEXT, "readdir64");
    struct dirent64 *entry = real(directory);
    if (mode("readdir") && entry && strstr(entry->d_name, "third")) { errno = EIO; return NULL; }
    if (mode("untyped") && entry) entry->d_type = DT_UNKNOWN;
    return entry;
}

DIR *fdopendir(int handle) {
    DIR *(*real)(int) = dlsym(RTLD_NEXT, "fdopendir");
    if (mode("fdopendir")) { errno = ENOMEM; return NULL; }
    return real(handle);
}

int unlinkat(int parent, const char *name, int flags) {
    int (*real)(int, const char *, int) = dlsym(RTLD_NEXT, "unlinkat");
    if (mode("unlink") && strstr(name, "third")) { errno = EIO; return -1; }
    return real(parent, name, flags);
}

int fstatat64(int parent, const char *name, struct stat64 *status, int flags) {
    int (*real)(int, const char *, struct stat64 *, int) = dlsym(RTLD_NEXT, "fstatat64");
    if (mode("stat") && strstr(name, "third")) { errno = EIO; return -1; }
    if (mode("vanished") && strstr(name, "third")) { errno = ENOENT; return -1; }
    return real(parent, name, status, flags);
}
"""

WALK = """
import os, sys
from lakesweep.storage.local.walk import Walk
before = len(os.listdir("/dev/fd"))
for mode in ("none", "readdir", "stat", "vanished", "untyped", "fdopendir"):
    os.environ["SHIM"] = mode
    try:
        found = [path for batch in Walk(sys.argv[1]).batches() for path in batch["path"].to_pylist()]
        print(mode, *sorted(path.rpartition("/")[2] for path in found))
    except Exception as exc:
        print(mode, type(exc).__name__, exc)
print("handles", len(os.listdir("/dev/fd")) - before)
"""

DELETE = """
import asyncio, os, sys
from lakesweep.storage.local.deleter import LocalDeleter
paths = [f"file://{sys.argv[1]}/inner/{name}" for name in ("second", "third")]
for mode in ("stat", "unlink", "none"):
    os.environ["SHIM"] = mode
    answers = asyncio.run(LocalDeleter().delete(paths))
    left = sorted(os.listdir(f"{sys.argv[1]}/inner"))
    print(mode, *(f"{answer.status.value} {answer.why};" for answer in answers), *left)
"""


@pytest.fixture
def tree(tmp_path):
    tree = tmp_path / "t"
    (tree / "inner").mkdir(parents=True)
    for name in ("first", "inner/second", "inner/third"):
        (tree / name).touch()
    return tree


@pytest.fixture
def told(tmp_path, tree):
    """Run a program over the tree with some calls replaced; what it says of each mode."""
    if sys.platform != "linux":
        pytest.skip("calls are replaced as Linux does it")
    (tmp_path / "shim.c").write_text(SHIM)
    shim = tmp_path / "shim.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", shim, tmp_path / "shim.c", "-ldl"], check=True)

    def run(program):
        faulty = {**os.environ, "LD_PRELOAD": str(shim)}
        asked = [sys.executable, "-c", program, str(tree)]
        done = subprocess.run(asked, env=faulty, capture_output=True, text=True, check=True)
        return dict(line.split(" ", 1) for line in done.stdout.splitlines())

    return run


def test_failed_calls_are_errors_and_unknown_types_are_looked_up(told, tree, tmp_path):
    (tree / "link").symlink_to(tmp_path / "shim.c")
    (tree / "inner/round").symlink_to(tree)
    lines = told(WALK)
    assert lines["none"] == lines["untyped"] == "first second third"
    assert lines["vanished"] == "first second"
    for mode in ("readdir", "stat"):
        assert lines[mode].startswith("Unavailable ")
        assert f"file://{tree}/inner" in lines[mode]
        assert "Input/output error" in lines[mode]
    assert lines["fdopendir"].startswith("Unavailable ")
    assert lines["handles"] == "0"


def test_a_file_that_cannot_be_looked_at_or_removed_fails_and_is_there_still(told):
    lines = told(DELETE)
    assert lines["stat"] == "deleted None; failed Input/output error; third"
    assert lines["unlink"] == "already_gone None; failed Input/output error; third"
    assert lines["none"] == "already_gone None; deleted None;"
