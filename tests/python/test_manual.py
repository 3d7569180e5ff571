"""scripts/make_manual.py: the man page and the completions name every verb and option of the program."""

import re
import shutil
import subprocess
import sys

import pytest
from conftest import BUILD, ROOT


@pytest.fixture(scope="module")
def share(tmp_path_factory):
    out = tmp_path_factory.mktemp("share")
    subprocess.run([sys.executable, ROOT / "scripts" / "make_manual.py", BUILD / "millrace", out], check=True)
    return out


def options(millrace, verb):
    return set(re.findall(r"^  (?:-\w,)?(--[\w-]+)", millrace.run(verb, "--help").stdout.decode(), re.M))


def test_every_option_is_listed(millrace, share):
    page = (share / "man/man1/millrace.1").read_text().replace("\\-", "-")
    assert ".SH ENVIRONMENT" in page and "MILLRACE_CACHE" in page and ".SH EXIT STATUS" in page
    fish = (share / "fish/vendor_completions.d/millrace.fish").read_text()
    zsh = (share / "zsh/site-functions/_millrace").read_text()
    for verb in ("run", "serve", "doctor"):
        section = page.split(f".SH MILLRACE {verb.upper()}\n")[1].split(".SH ")[0]
        for name in options(millrace, verb):
            assert f"\\fB{name}\\fR" in section
            assert re.search(rf"seen_subcommand_from {verb}'.* -l {name[2:]}( |$)", fish), name
            assert f"'*{name}[" in zsh


def test_bash_completes_verbs_options_and_values(millrace, share):
    def complete(*words):
        script = 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _millrace; printf "%s\\n" "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "-c", script, share / "bash-completion/completions/millrace", "millrace", *words], capture_output=True, text=True, check=True)
        return set(done.stdout.split())

    assert complete("se") == {"serve"}
    assert complete("run", "--thinking", "") == {"on", "off"}
    assert complete("serve", "--") == options(millrace, "serve")


@pytest.mark.skipif(shutil.which("man") is None, reason="man is not installed")
def test_man_reads_the_page(share):
    done = subprocess.run(["man", "-l", "--warnings", share / "man/man1/millrace.1"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "" and "MILLRACE SERVE" in done.stdout
