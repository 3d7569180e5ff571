"""Cases whose files hold quantized matrices."""

from .cases import SMALL, Case, llama

CASES = [
    llama(
        "mxfp4",
        "GGUF with matrices in MXFP4",
        quantized="mxfp4",
        notes="the Hugging Face folder holds the rounded numbers in f32",
    ),
    Case(
        "qwen3_fp8",
        "Qwen3ForCausalLM",
        SMALL | {"hidden_size": 64, "intermediate_size": 96, "head_dim": 12},
        "matrices in FP8 with one scale per tile (weight_scale_inv); rows of the output projection are not whole blocks",
        dtype="bfloat16",
        quantized="fp8",
        gguf=False,
        notes="GGUF has no FP8",
    ),
]
