#!/usr/bin/env python3
"""Writes the man page and the completions of bash, zsh and fish from the program's own table of options, as --help prints it.

usage: scripts/make_manual.py PROGRAM OUT      OUT becomes a tree of share/: man/man1, bash-completion, zsh, fish
"""

import pathlib
import re
import subprocess
import sys
from dataclasses import dataclass, field


@dataclass
class Option:
    names: list[str]
    value: str  # "" for a flag
    choices: list[str]
    about: str


@dataclass
class Verb:
    name: str
    about: str
    usage: str = ""
    options: list[Option] = field(default_factory=list)
    positionals: list[tuple[str, str]] = field(default_factory=list)


def read_option(line, about):
    names, _, rest = line.partition(" ")
    choices = re.search(r":\{([^}]*)\}", rest)
    value = re.match(r"[A-Z]*", rest)[0]
    return Option(names.split(","), value, choices[1].split(",") if choices else [], about)


def read_help(text, verb):
    """An entry is a line of two spaces, then the text behind column 30 or on the next line."""
    section, entries = "", []
    for line in text.splitlines():
        if line.startswith("Usage: "):
            verb.usage = line[len("Usage: ") :]
        elif re.match(r"[A-Z][a-z]+:$", line):
            section = line[:-1]
        elif re.match(r"  \S", line):
            parts = re.match(r"  (.*?)(?:\s{2,}(.*))?$", line)
            head, about = (line[2:30].rstrip(), line[30:]) if len(line) > 30 and line[28:30] == "  " else (parts[1], parts[2] or "")
            entries.append([section, head, about])
        elif line.startswith(" " * 30) and entries:
            entries[-1][2] = f"{entries[-1][2]} {line.strip()}".strip()
    for section, head, about in entries:
        if section == "Options":
            verb.options.append(read_option(head, about))
        elif section == "Positionals":
            verb.positionals.append((head.split()[0], about))
    return [(head, about) for section, head, about in entries if section == "Subcommands"]


def read_program(program):
    def help_of(*verb):
        return subprocess.run([program, *verb, "--help"], check=True, capture_output=True, text=True).stdout

    top = Verb("", "")
    verbs = []
    for name, about in read_help(help_of(), top):
        verb = Verb(name, about)
        read_help(help_of(name), verb)
        verbs.append(verb)
    return top, verbs


# docs/cli.md has the whole table.
ENVIRONMENT = [
    ("MILLRACE_CACHE", "the folder of fetched models and measured plans"),
    ("HF_TOKEN", "the token for models of the Hugging Face hub that need an account"),
    ("HF_ENDPOINT, PIP_INDEX_URL", "where models are fetched from"),
    ("MILLRACE_OPTION", "an option of serve, as MILLRACE_MAX_QUEUE; MILLRACE_API_KEYS: its keys"),
    ("NO_COLOR", "set: no colours"),
]


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def man_page(version, verbs):
    lines = [f'.TH MILLRACE 1 "" "millrace {version}" "User Commands"', ".SH NAME", "millrace \\- run and serve language models",
             ".SH SYNOPSIS", ".B millrace", "\\fIVERB\\fR [\\fIOPTIONS\\fR]", ".SH VERBS"]  # fmt: skip
    for verb in verbs:
        lines += [".TP", f".B {roff(verb.name)}", roff(verb.about)]
    for verb in verbs:
        lines += [f".SH MILLRACE {verb.name.upper()}", roff(verb.about), ".PP", f".B {roff(verb.usage)}"]
        for name, about in verb.positionals:
            lines += [".TP", f".I {roff(name)}", roff(about)]
        for option in verb.options:
            value = f" \\fI{option.value}\\fR" if option.value else ""
            lines += [".TP", ", ".join(f"\\fB{roff(name)}\\fR" for name in option.names) + value, roff(option.about)]
    lines += [".SH EXIT STATUS", "0: success. 1: failure. 2: misuse. A verb that is interrupted ends by the signal."]
    lines += [".SH ENVIRONMENT"]
    for name, about in ENVIRONMENT:
        lines += [".TP", f".B {roff(name)}", roff(about)]
    lines += [".SH FILES", ".TP", ".I ~/.cache/millrace", "fetched models and measured plans"]
    return "\n".join(lines) + "\n"


def bash(verbs):
    cases = []
    for verb in verbs:
        words = " ".join(name for option in verb.options for name in option.names)
        chosen = "".join(f"      {'|'.join(o.names)}) COMPREPLY=($(compgen -W '{' '.join(o.choices)}' -- \"$word\")); return ;;\n" for o in verb.options if o.choices)
        chosen = f"    case $before in\n{chosen}    esac\n" if chosen else ""
        cases.append(f"  {verb.name})\n{chosen}    words='{words}' ;;\n")
    return f"""# bash completion of millrace
_millrace() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} words
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W '{" ".join(verb.name for verb in verbs)} --help --version' -- "$word"))
    return
  fi
  case ${{COMP_WORDS[1]}} in
{"".join(cases)}  esac
  [[ $word == -* ]] && COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _millrace millrace
"""


def quoted(text):
    return text.replace("'", "'\\''")


def zsh(verbs):
    listed = "\n".join(f"    '{verb.name}:{quoted(verb.about)}'" for verb in verbs)
    cases = ""
    for verb in verbs:
        specs = []
        for option in verb.options:
            about = quoted(re.sub(r"([\[\]:])", r"\\\1", option.about))
            action = f":{option.value}:({' '.join(option.choices)})" if option.choices else f":{option.value}:_files" if option.value else ""
            specs += [f"'*{name}[{about}]{action}'" for name in option.names]
        cases += f"  {verb.name}) _arguments " + " ".join(specs) + " '*::_files' ;;\n"
    return f"""#compdef millrace
local -a verbs=(
{listed}
)
if ((CURRENT == 2)); then
  _describe verb verbs
  return
fi
local verb=$words[2]
shift words
((CURRENT--))
case $verb in
{cases}esac
"""


def fish(verbs):
    lines = ["# fish completion of millrace"]
    lines += [f"complete -c millrace -n __fish_use_subcommand -f -a {verb.name} -d '{verb.about.replace(chr(39), chr(92) + chr(39))}'" for verb in verbs]
    for verb in verbs:
        for option in verb.options:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            value = f" -x -a '{' '.join(option.choices)}'" if option.choices else " -r" if option.value else ""
            about = option.about.replace("\\", "\\\\").replace("'", "\\'")
            lines.append(f"complete -c millrace -n '__fish_seen_subcommand_from {verb.name}' {names}{value} -d '{about}'")
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip().splitlines()[2])
    program, out = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2])
    version = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    _, verbs = read_program(program)
    files = {
        "man/man1/millrace.1": man_page(version, verbs),
        "bash-completion/completions/millrace": bash(verbs),
        "zsh/site-functions/_millrace": zsh(verbs),
        "fish/vendor_completions.d/millrace.fish": fish(verbs),
    }
    for name, text in files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(text)


if __name__ == "__main__":
    main()
