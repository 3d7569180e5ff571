"""The cases of scripts/make_encoder_goldens.py: tiny models that give one vector for a text, or a score for a pair."""

from dataclasses import dataclass, field


@dataclass
class EncoderCase:
    name: str
    architecture: str  # class of transformers, and config.json's architectures[0]
    config: dict
    covers: str
    gguf: str = ""  # general.architecture; empty: GGUF cannot say what the case covers
    pooling: str = ""  # "cls", "mean", "lasttoken": as 1_Pooling/config.json; empty: the architecture's own classifier
    normalise: bool = False
    dense: tuple = ()  # (outputs, tanh) of each dense module
    pairs: bool = False  # inputs are pairs of texts, with token types
    named: str = ""  # architectures[0], if another than the class
    matters: list = field(default_factory=list)  # config changes that must change the result


SMALL = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
}
ROBERTA = SMALL | {"pad_token_id": 1, "max_position_embeddings": 130, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
MODERN = SMALL | {"num_hidden_layers": 4, "local_attention": 10, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}
QWEN = SMALL | {"num_key_value_heads": 2, "head_dim": 8, "rms_norm_eps": 1e-6, "tie_word_embeddings": True}

CASES = [
    EncoderCase("bert", "BertModel", SMALL, "BERT, mean pooling, unit length", "bert", "mean", normalise=True),
    EncoderCase("bert_dense", "BertModel", SMALL | {"hidden_act": "gelu_new"}, "first token, a dense module with tanh", "",
                "cls", dense=((24, True),), matters=[{"hidden_act": "relu"}]),
    EncoderCase("bert_cross", "BertForSequenceClassification", SMALL | {"num_labels": 1}, "a cross-encoder with token types",
                pairs=True),
    EncoderCase("roberta", "RobertaModel", ROBERTA, "positions behind the padding token's", "bert", "cls", normalise=True),
    EncoderCase("xlm_roberta_cross", "XLMRobertaForSequenceClassification", ROBERTA | {"num_labels": 1},
                "a cross-encoder with a dense layer", "bert"),
    EncoderCase("modernbert", "ModernBertModel", MODERN, "windows to both sides, two ropes", "modern-bert", "mean",
                normalise=True, matters=[{"local_attention": 40}, {"layer_types": ["full_attention"] * 4}]),
    EncoderCase("modernbert_cross", "ModernBertForSequenceClassification", MODERN | {"num_labels": 1, "norm_bias": True},
                "a cross-encoder with a norm in its head", "modern-bert"),
    EncoderCase("modernbert_mean_labels", "ModernBertForSequenceClassification",
                MODERN | {"num_labels": 3, "classifier_pooling": "mean", "attention_bias": True, "mlp_bias": True},
                "a classifier of the mean, with biases", matters=[{"classifier_pooling": "cls"}]),
    EncoderCase("nomic_bert", "NomicBertModel", SMALL | {"type_vocab_size": 2}, "RoPE and a gated feed-forward", "nomic-bert",
                "mean", normalise=True, matters=[{"rope_parameters": {"rope_type": "default", "rope_theta": 1e5}}]),
    EncoderCase("embedding_gemma", "Gemma3TextModel",
                QWEN | {"use_bidirectional_attention": True, "sliding_window": 12, "query_pre_attn_scalar": 8,
                        "num_hidden_layers": 3, "sliding_window_pattern": 2},
                "Gemma 3 in both directions, dense modules", "gemma-embedding", "mean", normalise=True,
                dense=((40, False), (32, False)), matters=[{"sliding_window": 40}, {"use_bidirectional_attention": False}]),
    EncoderCase("qwen3_embedding", "Qwen3Model", QWEN, "a causal decoder, last token", "qwen3", "lasttoken", normalise=True,
                named="Qwen3ForCausalLM"),
    EncoderCase("qwen3_cross", "Qwen3ForSequenceClassification", QWEN | {"num_labels": 2}, "a causal decoder with a classifier",
                "qwen3"),
]
