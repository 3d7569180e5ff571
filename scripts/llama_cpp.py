"""A CPU build of llama.cpp to compare with, and bench/peers/llama_peer.cpp over it.

`build()` fetches the source archive of llama-cpp-python from PyPI and builds its libraries in build/peers (ignored by git), once, for the
machine at hand. It returns the folder with llama_peer.
"""

import os
import pathlib
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PEERS = ROOT / "build" / "peers"
PACKAGE = "llama-cpp-python==0.3.36"


def run(command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def source():
    archives = list(PEERS.glob("llama_cpp_python-*.tar.gz"))
    if not archives:
        PEERS.mkdir(parents=True, exist_ok=True)
        print(f"fetching {PACKAGE} and building it in {PEERS.relative_to(ROOT)}: some minutes, once", file=sys.stderr, flush=True)
        run([sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "-d", PEERS, PACKAGE])
        archives = list(PEERS.glob("llama_cpp_python-*.tar.gz"))
    folder = PEERS / archives[0].name.removesuffix(".tar.gz")
    if not folder.exists():
        with tarfile.open(archives[0]) as tar:
            tar.extractall(PEERS, filter="data")
    code = folder / "vendor" / "llama.cpp"
    # g++ 12 drops the stores into the configuration of the tiles: the intrinsic does not say that it reads memory.
    tiles = code / "ggml" / "src" / "ggml-cpu" / "amx" / "mmq.cpp"
    text = tiles.read_text()
    if "/* stores */" not in text:
        tiles.write_text(text.replace("_tile_loadconfig(", '/* stores */ asm volatile("" ::: "memory"); _tile_loadconfig('))
    return code


def build(target="llama"):
    """The folder of the build's programs; `target` names a program of llama.cpp that is wanted there, too."""
    programs = PEERS / "build" / "bin"
    peer = programs / "llama_peer"
    wanted = peer if target == "llama" else programs / target
    ours = ROOT / "bench" / "peers" / "llama_peer.cpp"
    if wanted.exists() and peer.exists() and peer.stat().st_mtime >= ours.stat().st_mtime:
        return programs
    code = source()
    run(["cmake", "-S", code, "-B", PEERS / "build", "-DCMAKE_BUILD_TYPE=Release", "-DLLAMA_CURL=OFF", "-DLLAMA_BUILD_TESTS=OFF",
         "-DLLAMA_BUILD_SERVER=OFF", "-DBUILD_SHARED_LIBS=ON", "-DCMAKE_INSTALL_RPATH=$ORIGIN", "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON"])
    run(["cmake", "--build", PEERS / "build", "-j", os.cpu_count(), "--target", target])
    run(["g++", "-std=c++20", "-O2", f"-I{code}/include", f"-I{code}/ggml/include", ours, "-o", peer, f"-L{programs}", "-lllama", "-lggml",
         "-lggml-base", "-Wl,-rpath,$ORIGIN", f"-Wl,-rpath-link,{programs}"])
    return programs
