"""`convert` as a user runs it; tests/convert has the formats and the architectures."""

import shutil

import gguf
import numpy
import pytest
from conftest import GOLDENS


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tiny").mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(GOLDENS / "llama_gqa" / name, tmp_path / "tiny" / name)
    return tmp_path / "tiny"


def test_names_the_file_after_folder_and_type(millrace, folder):
    done = millrace.json("convert", folder)
    assert done["type"] == "F32" and done["file"] == str(folder / "tiny-F32.gguf")
    reader = gguf.GGUFReader(done["file"])
    assert reader.fields["general.architecture"].contents() == "llama"
    assert reader.fields["general.name"].contents() == "tiny"
    assert {t.name for t in reader.tensors} >= {"token_embd.weight", "blk.1.ffn_down.weight", "output_norm.weight"}


def test_result_has_the_folders_logits(millrace, folder, tmp_path):
    out = tmp_path / "out.gguf"
    millrace.json("convert", folder, "-o", out)
    ask = ("logits", "--exact", "--tokens", "1,5,9,2")
    numpy.testing.assert_allclose(millrace.json(*ask, "-m", out)["logits"], millrace.json(*ask, "-m", folder)["logits"],
                                  atol=1e-4)


def test_one_line_errors(millrace, folder, tmp_path):
    out = tmp_path / "out.gguf"
    assert "one of F32, F16" in millrace.fails("convert", folder, "-o", out, "--type", "Q7", code=2)
    millrace.json("convert", folder, out)
    assert "--force replaces it" in millrace.fails("convert", folder, "-o", out, code=2)
    millrace.json("convert", folder, "-o", out, "--force", "--type", "BF16")
    assert "is not a Hugging Face folder" in millrace.fails("convert", out, "-o", tmp_path / "other.gguf", code=2)
    assert "no config.json" in millrace.fails("convert", tmp_path, "-o", tmp_path / "other.gguf")
    assert not list(tmp_path.glob("*.partial"))
