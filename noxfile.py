# SPDX-License-Identifier: Apache-2.0
"""What can be run on this repository: ``nox -l`` lists it, ``nox -s NAME`` runs one.

Sessions that need PyTorch share one environment, ``.nox/work-<python>``, since each copy of it
costs a gigabyte; ``wheels`` makes clean ones of its own.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import nox

ROOT = Path(__file__).resolve().parent
BUILD = ROOT / "build"
DIST = ROOT / "dist"
RESULTS = ROOT / "docs" / "benchmarks" / "results"
PACKAGES = ("core", "pytorch-direct", "hector", "ssdtrain")
TESTS = (
    "tools/tests",
    "core/tests/python",
    "pytorch-direct/tests",
    "hector/tests",
    "ssdtrain/tests",
    "integration-tests",
)
TYPED = (
    "core/python/datapath_core",
    "pytorch-direct/python/pytorch_direct",
    "hector/python/hector",
    "ssdtrain/python/ssdtrain",
    "tools",
    "noxfile.py",
)
CPP = {"plain": "", "address": "address;undefined", "thread": "thread"}

nox.needs_version = ">=2024.10"
nox.options.sessions = ["tests"]
GROUPS = nox.project.load_toml(ROOT / "pyproject.toml")


def shared_session(function: Callable[[nox.Session], None]) -> Callable[[nox.Session], None]:
    """Make a session that brings its own environment."""
    return nox.session(venv_backend="none")(function)


def environment(session: nox.Session, folder: Path, *groups: str) -> str:
    """Make an environment where there is none, put groups of tools into it, return its Python."""
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        session.error(
            f"this is Python {sys.version.split()[0]}; 3.11, 3.12 and 3.13 are supported. "
            "Make .venv with one of them and run nox from there."
        )
    python = folder / "bin" / "python"
    if not python.exists():
        session.run(sys.executable, "-m", "venv", str(folder), external=True)
    session.env["PATH"] = os.pathsep.join([str(python.parent), os.environ["PATH"]])
    session.env["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    wanted = [entry for group in groups for entry in nox.project.dependency_groups(GROUPS, group)]
    pip_install(session, str(python), *wanted)
    return str(python)


def pip_install(session: nox.Session, python: str, *arguments: str) -> None:
    """Install within the constraints of development."""
    constraints = ("--constraint", str(ROOT / "constraints.txt"))
    session.run(python, "-m", "pip", "install", "-q", *constraints, *arguments, external=True)


def install_packages(
    session: nox.Session, python: str, *options: str, packages: tuple[str, ...] = PACKAGES
) -> None:
    """Install the packages; native builds are kept under ``build/`` and so are incremental."""
    for package in packages:
        build_dir = BUILD / f"{package}-{'editable-' if options else ''}{{wheel_tag}}"
        native = (ROOT / package / "CMakeLists.txt").exists()
        settings = ("--config-settings", f"build-dir={build_dir}") if native else ()
        where = (*options, str(ROOT / package))
        pip_install(session, python, "--no-build-isolation", *settings, *where)


def work(session: nox.Session, *groups: str) -> str:
    """Return the Python of the shared environment, with the four packages as they are now."""
    folder = ROOT / ".nox" / f"work-{sys.version_info.major}.{sys.version_info.minor}"
    python = environment(session, folder, "build", "test", *groups)
    install_packages(session, python)
    return python


def tools(session: nox.Session, *groups: str) -> str:
    """Return the Python of the shared environment without installing the packages."""
    folder = ROOT / ".nox" / f"work-{sys.version_info.major}.{sys.version_info.minor}"
    return environment(session, folder, *groups)


@shared_session
def demo(session: nox.Session) -> None:
    """Train on real data with all four packages; ends in a table and pictures in demo-report/."""
    python = work(session, "demo")
    session.run(python, "docs/examples/demo.py", *session.posargs, external=True)


@shared_session
def tests(session: nox.Session) -> None:
    """Run the tests of all packages and those across them (or what is named after --)."""
    python = work(session, "demo")
    command = (python, "-m", "pytest", "-c", "pyproject.toml", "--timeout=300")
    if session.posargs:
        session.run(*command, *session.posargs, external=True)
        return
    run_all(session, {folder: (*command, "-q", folder) for folder in TESTS})


@shared_session
def frameworks(session: nox.Session) -> None:
    """Run ssdtrain's tests under training frameworks, in an environment of their own.

    Downloads 40 MB of frameworks, beside the 0.2 GB of a CPU build of PyTorch where pip has none at
    hand. On the CPU; what needs a GPU is run by ``gpu`` where the frameworks are installed.
    """
    tests = ROOT / "integration-tests" / "ssdtrain_frameworks"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    python = environment(session, ROOT / ".nox" / f"frameworks-{version}", "build", "test", "demo")
    install_packages(session, python, packages=("core", "ssdtrain"))
    # DeepSpeed compiles nothing at install; what it then compiles when used, these tests leave out.
    session.env["DS_BUILD_OPS"] = "0"
    pip_install(session, python, "setuptools", "wheel")
    pip_install(
        session, python, "--constraint", str(tests / "constraints.txt"), "--no-build-isolation",
        "megatron-core", "peft", "transformers", "accelerate", "lightning", "deepspeed",
    )  # fmt: skip
    # A framework that cannot be imported would only be skipped.
    names = "accelerate, deepspeed, lightning, megatron.core, peft, transformers"
    session.run(python, "-W", "ignore", "-c", f"import {names}", external=True, silent=True)
    session.run(
        python, "-m", "pytest", "-c", "pyproject.toml", "--timeout=300", "-q",
        *(session.posargs or [str(tests)]), external=True,
    )  # fmt: skip


@shared_session
def lint(session: nox.Session) -> None:
    """Check style, types, stubs, versions and, with clang-tidy, the C++ sources."""
    python = work(session, "demo", "lint")
    sources = [
        str(path)
        for folder in ("core", "pytorch-direct")
        for pattern in ("*.h", "*.hpp", "*.cpp", "*.c", "*.cu", "*.cuh")
        for path in sorted((ROOT / folder).rglob(pattern))
    ]
    configure(session, python, "plain")
    cores = str(os.cpu_count())
    tidy = (tool(python, "run-clang-tidy.py"), "-quiet", "-hide-progress", "-j", cores)
    commands = {
        "ruff": (python, "-m", "ruff", "check", "."),
        "ruff format": (python, "-m", "ruff", "format", "--check", "."),
        "versions": (python, "tools/check_versions.py"),
        "mypy": (python, "-m", "mypy", *TYPED),
        "stubs": (
            *(python, "-m", "mypy.stubtest", "datapath_core._core", "--ignore-unused-allowlist"),
            *("--allowlist", "tools/stubtest-allowlist.txt"),
        ),
        "clang-format": (tool(python, "clang-format"), "--dry-run", "-Werror", *sources),
        "clang-tidy": (*tidy, "-p", str(BUILD / "cpp-plain"), f"{ROOT}/core/src/.*"),
    }
    run_all(session, commands)


def run_all(session: nox.Session, commands: dict[str, tuple[str, ...]]) -> None:
    """Run every command, whichever fail before it; name those that did at the end."""
    failed = []
    for name, command in commands.items():
        try:
            # A list of all sources is not worth reading.
            session.log(f"{name}: {' '.join(command[:8])}")
            session.run(*command, external=True, log=False)
        except nox.command.CommandFailed:
            failed.append(name)
    if failed:
        session.error(f"failed: {', '.join(failed)}")


@shared_session
def cpp(session: nox.Session) -> None:
    """Build and run core's C++ tests: plain, address (with undefined), thread; or those named."""
    python = tools(session, "build")
    cores = str(os.cpu_count())
    commands = {}
    # GCC 12's sanitizer may read a thread's storage that is gone when a process ends.
    session.env["ASAN_OPTIONS"] = "intercept_tls_get_addr=0"
    for variant in session.posargs or CPP:
        configure(session, python, variant)
        folder = str(BUILD / f"cpp-{variant}")
        session.run(tool(python, "cmake"), "--build", folder, external=True)
        ctest = tool(python, "ctest")
        command: tuple[str, ...] = (ctest, "--test-dir", folder, "--output-on-failure", "-j", cores)
        if variant != "plain":
            # A sanitizer slows threads down unevenly: what two of them do at a time may fall apart.
            command = (*command, "--repeat", "until-pass:3")
        prefix = without_address_randomisation() if variant == "thread" else ()
        commands[variant] = (*prefix, *command)
    run_all(session, commands)


def tool(python: str, name: str) -> str:
    """Return a program of the environment that a Python belongs to."""
    return str(Path(python).with_name(name))


def configure(session: nox.Session, python: str, variant: str) -> None:
    """Configure one build of core's C++ tests."""
    session.run(
        tool(python, "cmake"), "-G", "Ninja", "-S", "core", "-B", str(BUILD / f"cpp-{variant}"),
        f"-DCMAKE_BUILD_TYPE={'RelWithDebInfo' if variant == 'plain' else 'Debug'}",
        f"-DDATAPATH_SANITIZE={CPP[variant]}", "-DDATAPATH_BUILD_TESTS=ON",
        f"-DDATAPATH_BUILD_BENCHMARKS={'ON' if variant == 'plain' else 'OFF'}",
        "-DDATAPATH_WARNINGS_AS_ERRORS=ON", "-DDATAPATH_BUILD_PYTHON=OFF",
        "--log-level=WARNING", external=True,
    )  # fmt: skip


def without_address_randomisation() -> tuple[str, ...]:
    """Return the prefix that keeps older thread sanitizers from refusing newer kernels' layouts."""
    return ("setarch", "--addr-no-randomize") if shutil.which("setarch") else ()


@nox.session(reuse_venv=True)
def wheels(session: nox.Session) -> None:
    """Build, check and try the four wheels in clean environments; `-- release`: for every GPU."""
    sys.path.insert(0, str(ROOT / "tools"))
    from interpreters import find

    release = "release" in session.posargs
    shutil.rmtree(DIST, ignore_errors=True)
    if release:
        shutil.rmtree(BUILD / "wheels-core", ignore_errors=True)
    build_wheels(session, "python", PACKAGES, release=release)
    session.run("python", "tools/check_wheels.py", *map(str, sorted(DIST.glob("*.whl"))))
    clean = clean_environment(session, Path(sys.executable), "clean")
    # Files and not names: an index that is asked for a name may answer with a stranger's package.
    pip_install(session, clean, *map(str, sorted(DIST.glob("*.whl"))))
    session.run(clean, "tools/smoke.py", external=True)
    for version in ("3.11", "3.12", "3.13"):
        if version == f"{sys.version_info.major}.{sys.version_info.minor}":
            continue
        found = find(version)
        if found is None:
            session.warn(f"no Python {version} on this machine: its wheels are not checked")
            continue
        other = clean_environment(session, found, f"python-{version}")
        native = ("core", "pytorch-direct")
        before = set(DIST.glob("*.whl"))
        build_wheels(session, other, native, release=release)
        new = sorted(set(DIST.glob("*.whl")) - before)
        session.run("python", "tools/check_wheels.py", *map(str, new))
        pip_install(session, other, *(str(wheel) for wheel in new if "datapath_core" in wheel.name))
        pip_install(session, other, "--no-deps", *map(str, new))
        session.run(other, "tools/smoke.py", "--without-torch", external=True)


def build_wheels(
    session: nox.Session, python: str, packages: tuple[str, ...], *, release: bool
) -> None:
    """Build wheels into ``dist/`` in isolation, core's first since others are built on it."""
    # One folder for every Python: only the bindings differ, so the library is compiled once.
    folder = BUILD / "wheels-core"
    settings = {"core": [f"build-dir={folder}"]}
    if release:
        settings["core"] += ["cmake.define.DATAPATH_LIBURING=on"]
        settings["pytorch-direct"] = ["cmake.define.PYTORCH_DIRECT_ARCHS=all"]
    for package in packages:
        # pip's short form, -C, is younger than the pip of Debian 12.
        options = [f"--config-settings={entry}" for entry in settings.get(package, [])]
        session.run(
            python, "-m", "pip", "wheel", "-q", "--no-deps", "--find-links", str(DIST),
            "--wheel-dir", str(DIST), *options, f"./{package}", external=True,
        )  # fmt: skip


def clean_environment(session: nox.Session, python: Path, name: str) -> str:
    """Make an empty environment and return its Python."""
    folder = Path(session.create_tmp()) / name
    shutil.rmtree(folder, ignore_errors=True)
    session.run(str(python), "-m", "venv", str(folder), external=True)
    return str(folder / "bin" / "python")


@shared_session
def bench(session: nox.Session) -> None:
    """Run the CPU benchmarks (or those named) and write their results and page."""
    python = work(session, "demo")
    session.run(python, "tools/bench_run.py", "--kind", "cpu", "--out", str(RESULTS),
                *session.posargs, external=True)  # fmt: skip
    session.run(python, "tools/bench_pages.py", external=True)


@shared_session
def gpu(session: nox.Session) -> None:
    """Run the tests that need a GPU; the outcome goes to gpu-report/."""
    python = work(session, "demo")
    session.run(python, "tools/gpu_run.py", "tests", "--out", "gpu-report", "--",
                *session.posargs, external=True)  # fmt: skip


@nox.session(name="bench-gpu", venv_backend="none")
def bench_gpu(session: nox.Session) -> None:
    """Run the GPU benchmarks (or those named) and write their results and page."""
    python = work(session, "demo")
    session.run(python, "tools/gpu_run.py", "bench", "--out", str(RESULTS),
                *session.posargs, external=True)  # fmt: skip
    session.run(python, "tools/bench_pages.py", external=True)


@shared_session
def docs(session: nox.Session) -> None:
    """Build the documentation into docs/_build/html; warnings are errors."""
    python = work(session, "demo", "docs")
    session.run(python, "tools/bench_pages.py", "--check", external=True)
    session.run(python, "tools/settings_page.py", "--check", external=True)
    session.run(python, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "docs",
                "docs/_build/html", external=True)  # fmt: skip


@shared_session
def dev(session: nox.Session) -> None:
    """Install the four packages editable, with every tool, into .venv-dev."""
    folder = ROOT / ".venv-dev"
    python = environment(session, folder, "build", "test", "demo", "lint", "docs")
    install_packages(session, python, "--editable")
    session.log(f"ready: source {folder.name}/bin/activate; after a change in C++ run this again")
