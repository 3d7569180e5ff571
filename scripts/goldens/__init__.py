"""The parts of scripts/make_goldens.py: cases, models, GGUF export and the two spellings of config.json."""
