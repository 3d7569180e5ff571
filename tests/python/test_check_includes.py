"""scripts/check-includes passes on this tree and catches every kind of violation."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def check(root):
    done = subprocess.run([sys.executable, ROOT / "scripts" / "check-includes", root], capture_output=True, text=True)
    return done.returncode, done.stdout


def tree(folder, files):
    for name, text in files.items():
        path = folder / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_this_tree_keeps_the_rules():
    assert check(ROOT)[0] == 0, check(ROOT)[1]


def test_a_clean_tree_passes(tmp_path):
    tree(tmp_path, {
        "base/environment.cpp": 'auto x = std::getenv("X");\n',
        "kernels/linear/linear.h": '#include "base/error.h"\n#include <arm_neon.h>\n',
        "dataflow/plan.h": '#include "kernels/linear/linear.h"\n#include "kernels/kernel.h"\n#include <vector>\n',
        "hardware/cuda/device.cpp": "#include <cuda_runtime.h>\n",
        "kernels/linear/cuda/plain/gemm.cu": "#include <cuda_fp16.h>\n",
        "models/llama.cpp": '#include "cache/state_cache.h"\n// getenv("X") would be wrong here\n',
        "base/CMakeLists.txt": "millrace_room(base SOURCES a.cpp LINKS fmt::fmt)\n",
    })
    code, output = check(tmp_path)
    assert (code, output) == (0, "6 files, 0 violations\n")


@pytest.mark.parametrize("name, text, complaint", [
    ("base/a.h", '#include "tensor/dtype.h"', "base/ may not include tensor/"),
    ("tensor/a.h", '#  include "hardware/isa.h"', "tensor/ may not include hardware/"),
    ("cache/a.cpp", '#include "models/model.h"', "cache/ may not include models/"),
    ("sampling/a.cpp", '#include "engine/engine.h"', "sampling/ may not include engine/"),
    ("formats/a.cpp", '#include "kernels/kernel.h"', "formats/ may not include kernels/"),
    ("text/a.cpp", '#include "models/model.h"', "text/ may not include models/"),
    ("store/a.cpp", '#include "tensor/dtype.h"', "store/ may not include tensor/"),
    ("models/a.cpp", '#include "engine/engine.h"', "models/ may not include engine/"),
    ("engine/a.cpp", '#include "cli/verb.h"', "engine/ may not include cli/"),
    ("dataflow/a.cpp", '#include "kernels/linear/sdot.h"', "contracts of kernels/ only"),
    ("dataflow/a.cpp", '#include "kernels/linear/norm.h"', "contracts of kernels/ only"),
    ("models/a.cpp", "#include <arm_neon.h>", "intrinsics do not belong here"),
    ("tensor/a.cpp", "#include <immintrin.h>", "intrinsics do not belong here"),
    ("engine/a.cpp", "#include <cuda_runtime.h>", "CUDA headers do not belong here"),
    ("kernels/linear/a.cu", "#include <cuda_fp16.h>", "CUDA headers do not belong here"),
    ("kernels/linear/a.cpp", "#include <cublasLt.h>", "CUDA headers do not belong here"),
    ("cli/a.cpp", 'auto x = std::getenv("X");', "environment variables"),
    ("attic/a.cpp", "", "not a room"),
    ("cli/a.cpp", '#include "attic/a.h"', "no such room"),
    ("text/a.h", "namespace millrace {\nstruct Twice {\n};", "Twice is defined in src/base/good.h too"),
    ("text/a.h", "namespace millrace {\nusing Twice = int;", "Twice is defined in src/base/good.h too"),
    ("text/a.h", "namespace millrace {\ntemplate <class T>\nusing Alias = T;", "Alias is defined in src/base/good.h too"),
    ("sampling/a.cpp", '#include "grammar/rules.h"', "sampling/ may not include grammar/"),
    ("engine/a.cpp", '#include "grammar/rules.h"', "engine/ may not include grammar/"),
    ("store/CMakeLists.txt", "millrace_room(store SOURCES a.cpp\n  LINKS base engine)", "store may not link engine"),
])
def test_a_violation_is_found(tmp_path, name, text, complaint):
    tree(tmp_path, {"base/good.h": "#pragma once\nnamespace millrace {\nstruct Twice {\n};\nusing Alias = int;\n}\n", name: f"#pragma once\n{text}\n"})
    code, output = check(tmp_path)
    assert code == 1
    assert complaint in output
    assert f"src/{name}" in output


def test_an_empty_tree_is_no_success(tmp_path):
    assert check(tmp_path)[0] == 1
