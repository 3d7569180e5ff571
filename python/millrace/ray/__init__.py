"""One model on many machines: a Ray Serve application with the server's own API at its front.

    serve run millrace.ray:app model=default max_replicas=4

Needs `ray[serve]`. docs/ray.md has a config file and says how requests find their replica.
"""

from .application import app
from .prefixes import prefix_keys
from .router import PrefixRouter
from .scaling import QueuedTokens

__all__ = ["PrefixRouter", "QueuedTokens", "app", "prefix_keys"]
