"""The archive of scripts/bundle runs in a root folder that has glibc and nothing else."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest
from conftest import BUILD, GOLDENS, ROOT

CHROOT = shutil.which("chroot", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
GLIBC = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libresolv.so.2", "libmvec.so.1")


def loader_and_glibc():
    """The loader as programs name it, and the files of glibc."""
    listed = subprocess.run(["ldd", BUILD / "millrace"], capture_output=True, text=True, check=True).stdout
    loader = re.search(r"^\s*(/\S*ld-linux\S*)", listed, re.MULTILINE)[1]
    folder = pathlib.Path(re.search(r"libc\.so\.6 => (\S+)", listed)[1]).parent
    return pathlib.Path(loader), [folder / name for name in GLIBC if (folder / name).exists()]


def may_chroot():
    return (os.geteuid() == 0 and CHROOT is not None
            and subprocess.run([CHROOT, "/", "true"], capture_output=True).returncode == 0)


@pytest.fixture(scope="module")
def bare_root(tmp_path_factory):
    if BUILD != ROOT / "build" / "release":
        pytest.skip("scripts/bundle packs the release build")
    if not may_chroot():
        pytest.skip("chroot is not permitted here")
    root = tmp_path_factory.mktemp("root")
    loader, libraries = loader_and_glibc()
    for file in [loader, *libraries]:
        (root / file.relative_to("/")).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, root / file.relative_to("/"))
    archive = subprocess.run([ROOT / "scripts" / "bundle"], capture_output=True, text=True, check=True).stdout.strip()
    subprocess.run(["tar", "-xzf", ROOT / archive, "-C", root, "--strip-components=1"], check=True)
    shutil.copy(GOLDENS / "llama_gqa" / "model.gguf", root / "tiny.gguf")
    (root / "tmp").mkdir()
    return root


def in_root(root, *args):
    env = {"HOME": "/tmp", "MILLRACE_CACHE": "/tmp/cache"}
    return subprocess.run([CHROOT, root, "/bin/millrace", *args], capture_output=True, text=True, env=env, timeout=120)


def test_the_root_has_only_glibc(bare_root):
    """Without the archive's libraries the program must not start: the next test would prove nothing."""
    shutil.move(bare_root / "lib" / "millrace", bare_root / "away")
    assert "cannot open shared object file" in in_root(bare_root, "--version").stderr
    shutil.move(bare_root / "away", bare_root / "lib" / "millrace")


def test_runs_with_only_glibc(bare_root):
    version = in_root(bare_root, "--version")
    assert version.returncode == 0 and version.stdout.strip(), version.stderr
    inspected = in_root(bare_root, "inspect", "/tiny.gguf")
    assert inspected.returncode == 0 and "llama" in inspected.stdout, inspected.stderr
    ran = in_root(bare_root, "run", "-m", "/tiny.gguf", "--raw", "-n", "4", "--temp", "0", "hello")
    assert ran.returncode == 0 and ran.stdout.strip(), ran.stderr
