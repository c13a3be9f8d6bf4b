"""Fails on an include against the module arrows of ARCHITECTURE.md, on libtorch outside runtime/, examples/ and
benchmarks/trainer/, or on an example that has grown beyond what one reads in one go."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
ALLOWED = {
    "base": {"base"},
    "rpc": {"rpc", "base"},
    "partition": {"partition", "base"},
    "importers": {"importers", "base", "partition"},
    "sampler": {"sampler", "base", "rpc", "partition"},
    "runtime": {"runtime", "base", "rpc", "partition", "sampler", "farhop"},
    # Of runtime only the launch contract and what it draws of topologies.
    "launcher": {"launcher", "base", "partition", "importers"},
    "examples": {"farhop"},
    "benchmarks": {"benchmarks", "base", "rpc", "partition", "sampler"},
    # A trainer as a user would write it.
    "benchmarks/trainer": {"farhop"},
}
LAUNCHER_MAY_SEE = {"runtime/launch_contract.h", "runtime/job_news.h", "runtime/binding_choice.h", "runtime/topology.h",
                    "runtime/job_status.h"}
# Which files may include which part of a module at all.
KERNELS = {
    "sampler/kernels.h",
    "sampler/kernel_chunks.h",
    "sampler/kernels_uniform.cpp",
    "sampler/kernels_replacement.cpp",
    "sampler/kernels_weighted.cpp",
    "sampler/row_holes.cpp",
    "sampler/row_holes.h",
    "sampler/relabel.h",
}
MAY_INCLUDE_TORCH = {"runtime", "examples", "benchmarks/trainer"}
MODULES = set(ALLOWED) - {"examples", "benchmarks/trainer"} | {"farhop", "tests", "benchmarks"}
# A trainer on any number of machines stays below this many lines.
EXAMPLE_LINES = 250
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]', re.M)


def problems():
    checked = 0
    for module, allowed in ALLOWED.items():
        for path in sorted((ROOT / module).rglob("*")):
            if path.suffix not in {".h", ".cpp"}:
                continue
            folder = path.parent.relative_to(ROOT).as_posix()
            if folder in ALLOWED and folder != module:
                continue  # checked for itself
            checked += 1
            name = path.relative_to(ROOT).as_posix()
            for included in INCLUDE.findall(path.read_text()):
                top = included.split("/")[0]
                if top in {"torch", "ATen", "c10"} and module not in MAY_INCLUDE_TORCH:
                    yield f"{name} includes libtorch ({included})"
                if top == "torch" and module == "runtime" and not name.startswith(("runtime/api/", "runtime/include/")):
                    yield f"{name} includes libtorch outside runtime/api ({included})"
                if "/" not in included or top not in MODULES:
                    continue
                if name in KERNELS and top not in {"base", "sampler"}:
                    yield f"{name} includes {included}: kernels know neither graph nor network"
                if module == "launcher" and included in LAUNCHER_MAY_SEE:
                    continue
                if top not in allowed:
                    yield f"{name} includes {included}: {module} may not include {top}"
    for path in sorted((ROOT / "examples").rglob("main.cpp")):
        lines = len(path.read_text().splitlines())
        if lines >= EXAMPLE_LINES:
            yield f"{path.relative_to(ROOT)} has {lines} lines; an example has fewer than {EXAMPLE_LINES}"
    if checked < 50:
        yield f"only {checked} files were checked; is the tree complete?"


found = list(problems())
for problem in found:
    print(problem)
print(f"{len(found)} problems")
sys.exit(1 if found else 0)
