"""Language models on the machine at hand.

>>> import millrace
>>> llm = millrace.LLM("default")
>>> llm.chat("Why is the sky blue?").text
>>> for delta in llm.stream("Once upon a time", max_tokens=32): print(delta.text, end="")
"""

from ._extension import __version__, set_verbosity
from .llm import LLM
from .outputs import Choice, Delta, Output, TokenLogprob
from .sampling import SamplingParams
from .search import Found, SearchResult
from .server import Server
from .streams import AsyncStream, Stream
from .tokenizer import Tokenizer

__all__ = ["LLM", "AsyncStream", "Choice", "Delta", "Found", "Output", "SamplingParams", "SearchResult", "Server", "Stream", "TokenLogprob", "Tokenizer", "__version__", "set_verbosity"]
