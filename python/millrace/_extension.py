"""Imports the compiled module. A system with only glibc lacks the libraries of the C++ compiler; the wheel brings copies,
which are loaded only there: a second copy beside the system's would disturb other packages."""

import ctypes
import importlib
import pathlib


def _load():
    try:
        return importlib.import_module("millrace._millrace")
    except ImportError:
        runtime = pathlib.Path(__file__).parent / "runtime"
        for name in ("libgcc_s.so.1", "libstdc++.so.6", "libz.so.1"):
            try:
                ctypes.CDLL(name)
            except OSError:
                if (runtime / name).exists():
                    ctypes.CDLL(str(runtime / name))
        return importlib.import_module("millrace._millrace")


_module = _load()
Model, Request, NativeServer, TreeSearch = _module.Model, _module.Request, _module.Server, _module.TreeSearch
__version__: str = _module.__version__


def set_verbosity(level: int) -> None:
    """Logs on stderr: 0 warnings, 1 decisions, 2 everything."""
    _module.set_verbosity(level)
