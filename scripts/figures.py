"""Pages of figures in docs/: machine, date, commit and command stand at their top, and each script replaces its own section.

A section lies between <!-- NAME --> and <!-- /NAME -->. The text around the sections is written by hand and stays.
"""

import datetime
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]
MADE_HEAD = ["| section | date | commit | command |", "|---|---|---|---|"]


def commit():
    """Short hash of the checkout, with "-dirty" where tracked files differ from it; "unknown" without git."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=7", "--exclude=*"], capture_output=True, text=True)
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def today():
    return datetime.date.today().isoformat()


def machine(hardware):
    """One line of what `millrace doctor --json` says about a CPU."""
    ceilings = hardware["ceilings"]
    return (f"{hardware['name']} ({hardware['isa']}), {hardware['cores']} cores; "
            f"{'measured' if ceilings['measured'] else 'guessed'} ceilings {ceilings['read_gbs']:.0f} GB/s, {ceilings['int8_gops']:.0f} int8 GOP/s.")


def page_of(hardware):
    return ROOT / "docs" / f"cpu-{re.sub('[^a-z0-9]+', '-', hardware['name'].lower()).strip('-')}.md"


def section_of(text, name):
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", text, flags=re.S)
    return found[1] if found else None


def replace_section(text, name, title, body):
    block = f"<!-- {name} -->\n{body.strip()}\n<!-- /{name} -->"
    if section_of(text, name) is None:
        return text.rstrip() + f"\n\n## {title}\n\n{block}\n"
    return re.sub(rf"<!-- {name} -->\n.*?<!-- /{name} -->", lambda _: block, text, flags=re.S)


def write_section(page, heading, machine_line, name, title, command, body):
    """Writes one section of a page and its row in the table at the top; makes the page if there is none."""
    text = page.read_text() if page.exists() else (
        f"# {heading}\n\n<!-- machine -->\n<!-- /machine -->\n\n<!-- made -->\n<!-- /made -->\n\n"
        "Changes to the code after a section's commit are not in its figures.\n")
    made = {row.split("|")[1].strip(): row for row in (section_of(text, "made") or "").splitlines() if row.startswith("| ") and row not in MADE_HEAD}
    made[title] = f"| {title} | {today()} | {commit()} | `{command}` |"
    text = replace_section(text, "machine", "Machine", f"Machine: {machine_line}")
    text = replace_section(text, "made", "Measured", "\n".join([*MADE_HEAD, *made.values()]))
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(replace_section(text, name, title, body))
