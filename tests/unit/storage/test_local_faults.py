"""A walk when the system's own calls fail, which no file system here can be made to do: they are replaced."""

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

int fstatat64(int parent, const char *name, struct stat64 *status, int flags) {
    int (*real)(int, const char *, struct stat64 *, int) = dlsym(RTLD_NEXT, "fstatat64");
    if (mode("stat") && strstr(name, "third")) { errno = EIO; return -1; }
    if (mode("vanished") && strstr(name, "third")) { errno = ENOENT; return -1; }
    return real(parent, name, status, flags);
}
"""

PROGRAM = """
import os, sys
from lakesweep.storage.local_walk import Walk
for mode in ("none", "readdir", "stat", "vanished", "untyped"):
    os.environ["SHIM"] = mode
    try:
        found = [path for batch in Walk(sys.argv[1]).batches() for path in batch["path"].to_pylist()]
        print(mode, *sorted(path.rpartition("/")[2] for path in found))
    except Exception as exc:
        print(mode, type(exc).__name__, exc)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="calls are replaced as Linux does it")
def test_a_call_that_fails_is_an_error_and_a_type_that_is_not_told_is_asked_for(tmp_path):
    (tmp_path / "shim.c").write_text(SHIM)
    shim = tmp_path / "shim.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", shim, tmp_path / "shim.c", "-ldl"], check=True)
    tree = tmp_path / "t"
    (tree / "inner").mkdir(parents=True)
    for name in ("first", "inner/second", "inner/third"):
        (tree / name).touch()
    (tree / "link").symlink_to(tmp_path / "shim.c")
    (tree / "inner/round").symlink_to(tree)
    program = [sys.executable, "-c", PROGRAM, str(tree)]
    faulty = {**os.environ, "LD_PRELOAD": str(shim)}
    told = subprocess.run(program, env=faulty, capture_output=True, text=True, check=True)
    lines = dict(line.split(" ", 1) for line in told.stdout.splitlines())
    assert lines["none"] == lines["untyped"] == "first second third"
    assert lines["vanished"] == "first second"
    for mode in ("readdir", "stat"):
        assert lines[mode].startswith("Unavailable ")
        assert f"file://{tree}/inner" in lines[mode]
        assert "Input/output error" in lines[mode]
