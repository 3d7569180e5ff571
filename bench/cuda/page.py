"""The page that scripts/bench-cuda makes of its results: tables and plots. The text from NOTES on is written by hand and stays."""

import json
import re

NOTES = "## What bounds it\n"
LONG = "llama-3.1-8b"  # a Llama-3-8B with a longer context
# Target tokens/s: decode by batch and depth, prompts by length.
DECODES = {"llama-2-7b bf16": {(1, 1024): 290, (8, 1024): 1800, (32, 1024): 4150, (64, 1024): 5300, (1, 16384): 180},
           "llama-3-8b bf16": {(1, 1024): 265, (8, 1024): 1980, (32, 1024): 6400, (64, 1024): 10000, (1, 16384): 235},
           "llama-3.2-1b bf16": {(1, 0): 1350},
           **{f"llama-2-7b {form}": {(1, 0): 750} for form in ("q4_0", "q4_k")},
           **{f"llama-3-8b {form}": {(1, 0): 620} for form in ("q4_0", "q4_k")}}
PROMPTS = {"pp1024": 42000, "pp2048": 42000, "pp4096": 42000, "pp8192": 39000}


def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rows), ""]


class Results:
    """The results in a folder; a part that did not run has no rows."""

    def __init__(self, folder):
        self.folder = folder

    def of(self, name, otherwise):
        file = self.folder / f"{name}.json"
        return json.loads(file.read_text()) if file.exists() else otherwise

    def models(self):
        peers = {}
        for file in sorted(self.folder.glob("hf-*.json")):
            for r in json.loads(file.read_text())["results"]:
                test = "tg" if r["test"] == "tg" else "pp1024"
                peers[(r["model"], test, r["batch"], r["depth"], r["how"])] = r["tokens_per_second"]
        for r in self.of("models", []):
            shape = "llama-3-8b" if r["model"] == LONG else r["model"]
            decode = r["test"].startswith("tg")
            goals = DECODES.get(f"{shape} {r['format']}", {})
            peer = lambda how: peers.get((shape, "tg" if decode else r["test"], r["batch"], r["depth"], how)) if r["format"] == "bf16" else None
            yield {**r, "goal": goals.get((r["batch"], r["depth"])) if decode else PROMPTS.get(r["test"]), "eager": peer("eager"), "compiled": peer("compiled")}

    def layers(self):
        """(layer, M, cuBLASLt's time / ours), without cuBLASLt's own kernels."""
        batches = []
        for line in (self.of("linear", None) or "").splitlines():
            name, *cells = line.strip("| ").split(" | ") if line.startswith("|") else [""]
            if name.startswith("layer"):
                batches = [int(cell.strip("M =|")) for cell in cells]
            for batch, cell in zip(batches, cells):
                if ratio := re.search(r"([\d.]+)x", cell):
                    yield name, batch, float(ratio[1])


def models_section(results):
    number = lambda x: "" if x is None else f"{x:.0f}"
    rows = [[f"{r['model']} {r['format']}", r["test"] + (f" at {r['depth']}" if r["depth"] else ""), str(r["batch"]), number(r["tokens_per_second"]),
             f"{r['percent_of_roof']:.0f} %", number(r["goal"]), number(r["eager"]), number(r["compiled"])] for r in results.models()]
    return ["## Models", "",
            "Random weights in the real shapes, KV cache in bf16; \"tg32 at 1024\" decodes 32 tokens behind a context of 1024. Rates are tokens/s of",
            "all sequences together, medians of three runs after a warm-up (`millrace bench`). Kernels are chosen by estimates, without `tune`. Every",
            "step samples on the GPU and copies its tokens to the host. Hugging Face transformers ran on the same card after millrace: eager, and",
            "(first shape only) under torch.compile with a static cache and CUDA graphs.", "",
            *table(["model", "test", "batch", "millrace", "of the roof", "goal", "transformers, eager", "compiled"], rows)]


def ablation_section(results):
    rows = results.of("ablation", [])
    cases = [case for case in ("1 at 1024", "8 at 1024", "32 at 1024", "1 at 8000") if any(case in row for row in rows)]
    base = rows[0] if rows else {}
    cell = lambda row, case: "" if case not in row else f"{row[case]:.0f}" + (f" ({row[case] / base[case]:.2f}x)" if case in base and row is not base else "")
    return ["## The three techniques switched off one by one", "",
            "Llama-3-8B, bf16, decode in tokens/s (batch at depth), tuned, with calibrated heads. Each row forces a kernel with `--kernel`; the figure in",
            "brackets is the ratio to \"all on\". A forced kernel that cannot run a shape leaves it to the others: flat mma and wgmma leave one token to",
            "the GEMV. Rows run in turns; figures are medians of three.", "",
            *table(["", *cases], [[row["name"], *(cell(row, case) for case in cases)] for row in rows])]


def layers_section(results):
    lines = (results.of("linear", None) or "").splitlines()
    return ["## Linear layers, against cuBLASLt", "",
            "bf16, cold weights, launches in a CUDA graph. Our launches overlap as in a step (programmatic dependent launch); cuBLASLt's do not. Each cell",
            "is the time in microseconds of the kernel that the plan chooses by its estimates, untuned, and cuBLASLt's time over it; medians of eight,",
            "in turns. cuBLASLt's time is the best of its 16 proposals with 64 MB of workspace. \"=\" means that the plan chooses cuBLASLt.", "",
            *(line for line in lines if line.startswith("|")), "", *(line for line in lines if "problems:" in line), ""]


def attention_section(results):
    theirs = {(t["kv_heads"], t["batch"], t["context"]): t for t in results.of("sdpa", [])}
    rows = []
    for r in sorted(results.of("decode", []), key=lambda r: (r["kv_heads"], r["context"], r["batch"])):
        if them := theirs.get((r["kv_heads"], r["batch"], r["context"])):
            flash, cudnn = them["FLASH_ATTENTION"], them["CUDNN_ATTENTION"]
            rows.append([f"32/{r['kv_heads']}", str(r["batch"]), str(r["context"]), f"{r['alone']:.1f}", f"{r['in_a_step']:.1f}", f"{flash:.1f}", f"{cudnn:.1f}",
                         f"{cudnn / r['alone']:.2f}x", f"{cudnn / r['in_a_step']:.2f}x"])
    return ["## Decode attention, against PyTorch's flash and cuDNN", "",
            "32 heads of 128, bf16, pages of 64, cold, in a CUDA graph; microseconds of our best variant. \"In a step\" launches the kernel as models do:",
            "it starts while the kernel before it drains. The column \"ours\" and PyTorch's columns launch one kernel after the other.", "",
            *table(["heads", "batch", "context", "ours", "in a step", "flash", "cuDNN", "cuDNN over ours", "in a step"], rows)]


def prompts_section(results):
    rates = results.of("prompts", {})
    return ["## Prompt attention, against PyTorch's flash and cuDNN", "",
            "One prompt, 32 heads of 128, bf16, causal, cold, in a CUDA graph; TFLOP/s, counting the unmasked half of the scores.", "",
            *table(["heads", "", *(str(512 << i) for i in range(6))], [[*name.split(), *map(str, row)] for name, row in sorted(rates.items())])]


def svg(title, bars):
    """bars: (label, value, colour, mark or None); values are ratios."""
    left, width, step = 230, 440, 20
    scale = width / (max([value for _, value, _, _ in bars] + [mark or 0 for *_, mark in bars] + [1]) * 1.08)
    height = 50 + step * len(bars)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 70}" height="{height}" font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>', f'<text x="10" y="20" font-weight="bold">{title}</text>']
    for i, (label, value, colour, mark) in enumerate(bars):
        y = 34 + step * i
        out.append(f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{label}</text>')
        out.append(f'<rect x="{left}" y="{y}" width="{value * scale:.1f}" height="15" fill="{colour}"/>')
        out.append(f'<text x="{left + value * scale + 5:.1f}" y="{y + 12}">{value:.2f}x</text>')
        if mark:
            out.append(f'<line x1="{left + mark * scale:.1f}" x2="{left + mark * scale:.1f}" y1="{y - 2}" y2="{y + 17}" stroke="#b03030" stroke-width="2"/>')
    one = left + scale
    out.append(f'<line x1="{one:.1f}" x2="{one:.1f}" y1="28" y2="{height - 8}" stroke="#888" stroke-dasharray="3,3"/></svg>')
    return "\n".join(out) + "\n"


def plots(results, out):
    """[(file, caption)] of all plots with results."""
    colours = {"llama-3-8b": "#2f7dba", LONG: "#2f7dba", "llama-2-7b": "#3a9b5c"}
    ablation, case = results.of("ablation", []), "8 at 1024"
    drawings = {
        "linear": ("Linear layers: time of cuBLASLt over ours",
                   [(f"{name.split(' [')[0]} M={batch}", ratio, colours.get({"8B": "llama-3-8b", "7B": "llama-2-7b"}.get(name[:2]), "#777"), None)
                    for name, batch, ratio in results.layers() if batch in (1, 8, 64) and "held" not in name]),
        "ablation": ("Llama-3-8B, batch 8: speed against all on",
                     [(row["name"], row[case] / ablation[0][case], "#2f7dba", None) for row in ablation if case in row and case in ablation[0]]),
        "models": ("Models: speed against transformers, eager (mark: compiled)",
                   [(f"{r['model']} {r['test']} b{r['batch']}", r["tokens_per_second"] / r["eager"], colours.get(r["model"], "#777"),
                     r["compiled"] / r["eager"] if r["compiled"] else None) for r in results.models() if r["eager"]]),
    }
    made = []
    for name, (title, bars) in drawings.items():
        if bars:
            file = out.with_name(f"{out.stem}-{name}.svg")
            file.write_text(svg(title, bars))
            made.append((file.name, title))
    return made


def measured(results):
    """One line for each commit that pieces were measured at."""
    pieces = {}
    for piece, (date, commit) in results.of("origin", {}).items():
        pieces.setdefault((date, commit), []).append(piece)
    return [f"- Measured {date} at commit {commit}: {', '.join(names)}. Later changes to the code are not in these figures."
            for (date, commit), names in sorted(pieces.items())]


def write(out, folder):
    results = Results(folder)
    hardware = results.of("hardware", {})
    gpu = hardware.get("gpu") or hardware.get("hardware", {})
    name = gpu.get("name", "a GPU") if isinstance(gpu, dict) else str(gpu)
    times = ", ".join(f"{shape} in {report['seconds']:.0f} s" for shape, report in results.of("tune", {}).items() if report)
    reads = gpu.get("ceilings", {}).get("read_gbs") if isinstance(gpu, dict) else None
    lines = [f"# On one {name}", "", f"- Machine: one {name}" + (f", whose memory reads {reads / 1e3:.2f} TB/s." if reads else "."), *measured(results),
             "- Command: `scripts/bench-cuda`." + (f" `tune` took {times}." if times else ""), ""]
    if (out.parent / "lab").exists():
        lines += ["Experiments on this card are in [lab/](lab/README.md).", ""]
    for section in (models_section, ablation_section, layers_section, attention_section, prompts_section):
        lines += section(results)
    for file, title in plots(results, out):
        lines += [f"![{title}]({file})", ""]
    notes = out.read_text().partition(NOTES)[2] if out.exists() else ""
    out.write_text("\n".join(lines) + (f"\n{NOTES}{notes}" if notes else "\n"))
