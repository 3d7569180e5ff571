#!/usr/bin/env python3
"""A build of llama.cpp to compare with, and the programs of bench/peers over it.

`build()` fetches the source archive of llama-cpp-python from PyPI and builds its libraries in build/peers (ignored by git), once, for the
machine at hand. It returns the folder with the programs.

    scripts/llama_cpp.py FOLDER --cuda 90a-real

puts the programs and libraries for another machine, a Xeon with AMX and such a GPU, into FOLDER.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PEERS = ROOT / "build" / "peers"
PACKAGE = "llama-cpp-python==0.3.36"
XEON_WITH_AMX = ["-DGGML_NATIVE=OFF", *(f"-DGGML_{name}=ON" for name in ("AVX512", "AVX512_VBMI", "AVX512_VNNI", "AVX512_BF16", "AMX_TILE",
                                                                         "AMX_INT8", "AMX_BF16"))]


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


def is_current(program, source):
    return program.exists() and program.stat().st_mtime >= source.stat().st_mtime


def build(target="llama", cuda="", options=()):
    """The folder of the build's programs. `target` names a program of llama.cpp that is wanted there, too. `cuda` are the architectures of its
    CUDA back-end, as CMake names them; "": it has none."""
    folder = PEERS / ("build-cuda" if cuda else "build")
    programs = folder / "bin"
    ours = sorted((ROOT / "bench" / "peers").glob("*.cpp"))
    if (target == "llama" or (programs / target).exists()) and all(is_current(programs / file.stem, file) for file in ours):
        return programs
    code = source()
    if cuda:
        options = ["-DGGML_CUDA=ON", f"-DCMAKE_CUDA_ARCHITECTURES={cuda}", *options]
    run(["cmake", "-S", code, "-B", folder, "-DCMAKE_BUILD_TYPE=Release", "-DLLAMA_CURL=OFF", "-DLLAMA_BUILD_TESTS=OFF",
         "-DLLAMA_BUILD_SERVER=OFF", "-DBUILD_SHARED_LIBS=ON", "-DCMAKE_INSTALL_RPATH=$ORIGIN", "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON",
         *options])
    run(["cmake", "--build", folder, "-j", os.cpu_count(), "--target", target])
    compile_programs(ours, code, programs)
    return programs


def compile_programs(files, code, programs):
    for file in files:
        run(["g++", "-std=c++20", "-O2", f"-I{code}/include", f"-I{code}/ggml/include", file, "-o", programs / file.stem, f"-L{programs}",
             "-lllama", "-lggml", "-lggml-base", "-Wl,-rpath,$ORIGIN", f"-Wl,-rpath-link,{programs}",
             "-Wl,--allow-shlib-undefined"])


def pack(programs, folder):
    """Copies the programs, stripped, with the libraries that another machine may lack."""
    folder.mkdir(parents=True, exist_ok=True)
    names = ["libllama.so.0", "libggml.so.0", "libggml-base.so.0", "libggml-cpu.so.0", "libggml-cuda.so.0",
             *(file.stem for file in (ROOT / "bench" / "peers").glob("*.cpp"))]
    for name in names:
        shutil.copy(programs / name, folder / name)
        run(["strip", folder / name])
    openmp = re.search(r"libgomp\S* => (\S+)", run(["ldd", programs / "libggml-cpu.so"]))
    if openmp:
        shutil.copy(openmp[1], folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--cuda", required=True, metavar="ARCHITECTURES")
    options = parser.parse_args()
    pack(build(cuda=options.cuda, options=XEON_WITH_AMX), options.folder)


if __name__ == "__main__":
    main()
