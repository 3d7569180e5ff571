"""The Dockerfile builds an image whose program runs. Needs a container tool that works here."""

import shutil
import subprocess

import pytest
from conftest import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tool():
    for name in ("docker", "podman"):
        if shutil.which(name) and subprocess.run([name, "info"], capture_output=True).returncode == 0:
            # docker's client alone answers, too; its daemon must.
            if subprocess.run([name, "ps"], capture_output=True).returncode == 0:
                return name
    pytest.skip("no container tool works here (docker, podman)")


def test_image_runs(tool):
    built = subprocess.run([tool, "build", "-q", "-t", "millrace-test", ROOT], capture_output=True, text=True, timeout=3600)
    assert built.returncode == 0, built.stderr[-2000:]
    ran = subprocess.run([tool, "run", "--rm", "millrace-test", "--version"], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0 and ran.stdout.strip(), ran.stderr
