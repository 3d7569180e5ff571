"""scripts/figures.py: pages of figures name machine, commit and command, and a script replaces its own section only."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import figures  # noqa: E402


def write(page, name, title, body, machine="A machine."):
    figures.write_section(page, "A CPU", machine, name, title, f"scripts/{name} --fast", body)


def test_a_new_page_names_machine_commit_and_command(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "commit", lambda: "0123abc")
    page = tmp_path / "docs" / "cpu.md"
    write(page, "peers", "Against a peer", "| 1 |")
    text = page.read_text()
    assert text.startswith("# A CPU\n")
    assert "Machine: A machine." in text
    assert f"| Against a peer | {figures.today()} | 0123abc | `scripts/peers --fast` |" in text
    assert text.index("0123abc") < text.index("## Against a peer") < text.index("| 1 |")


def test_a_section_is_replaced_and_the_rest_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "commit", lambda: "0123abc")
    page = tmp_path / "cpu.md"
    write(page, "peers", "Against a peer", r"first \1")
    write(page, "goals", "Goals", "second")
    page.write_text(page.read_text() + "\n## What bounds it\n\nBy hand.\n")
    monkeypatch.setattr(figures, "commit", lambda: "4567def")
    write(page, "peers", "Against a peer", r"third \g<0>", machine="Another machine.")
    text = page.read_text()
    assert r"first \1" not in text and r"third \g<0>" in text and "second" in text and "By hand." in text
    assert text.count("| Against a peer |") == 1 and "4567def | `scripts/peers" in text and "0123abc | `scripts/goals" in text
    assert "A machine." not in text and "Machine: Another machine." in text


def test_every_page_of_figures_in_the_tree_names_commit_and_command():
    pages = sorted((ROOT / "docs").glob("cpu-*.md")) + [ROOT / "docs" / "h200.md"]
    assert len(pages) > 1
    for page in pages:
        top = page.read_text().partition("\n## ")[0].lower()
        assert "machine" in top and "commit" in top and "command" in top, page
