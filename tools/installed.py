"""Compare what is installed with the tested set, by content: `python -m tools.installed`, or `make setup LOCK=1`.

hashes.txt has a hash of each package's files as they lie on the disk. It does not depend on the index that a wheel came
from, on how it was packed, or on what pip writes beside it; it was taken on Python 3.11, Linux, x86_64. Exit code 1 and
a line for each package that differs; those that hashes.txt does not know are named. `--write` takes it anew from this
environment.
"""

import hashlib
import importlib.metadata as metadata
import platform
import re
import sys
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
HASHES = ROOT / "hashes.txt"
MACHINE = "Python 3.11, Linux, x86_64"


def belongs(name: str) -> bool:
    """Whether a file is the package's own: not compiled here, no start script, nothing that describes the wheel."""
    path = PurePosixPath(name)
    described = any(part.endswith(".dist-info") for part in path.parts) and path.name != "entry_points.txt"
    start_script = path.parts[0] == ".." and path.parent.name == "bin"
    return not (described or start_script or "__pycache__" in path.parts)


def content(package: metadata.Distribution) -> str:
    """Hash the paths and contents of a package's own files; one that is missing is a hash of its own."""
    total = hashlib.sha256()
    for file in sorted(package.files or (), key=str):
        if belongs(file.as_posix()):
            path, digest = Path(str(file.locate())), "missing"
            if path.is_file():
                with path.open("rb") as opened:
                    digest = hashlib.file_digest(opened, "sha256").hexdigest()
            total.update(f"{file.as_posix()} {digest}\n".encode())
    return total.hexdigest()


def built_here(package: metadata.Distribution) -> bool:
    """Whether a compiler of this machine made it: its tag names no platform that wheels are shared for."""
    return "-linux_" in (package.read_text("WHEEL") or "")


def present(names: list[str]) -> dict[str, metadata.Distribution]:
    """Those of the packages that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def known() -> dict[str, tuple[str, str]]:
    """Version and hash of each package, as hashes.txt has them."""
    lines = [line.split() for line in HASHES.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return {pin.split("==")[0]: (pin.split("==")[1], digest) for pin, digest in lines}


def faults() -> list[str]:
    """A line for each installed package of the tested set that is not what hashes.txt says."""
    locked, found = known(), []
    for name, package in present([*locked]).items():
        version, digest = locked[name]
        if package.version != version:
            found.append(f"{name}=={package.version}: hashes.txt has {version}, another build or version")
        elif content(package) != digest:
            found.append(f"{name}=={version}: its files are not those of hashes.txt")
    return found


def unknown() -> list[str]:
    """Names of packages that hashes.txt says nothing about, such as your own; what was compiled here it cannot know."""
    locked, found = {*known(), "coevolve", "pip"}, []
    for package in metadata.distributions():
        name = re.sub(r"[-_.]+", "-", package.name).lower()
        if name not in locked and not built_here(package):
            found.append(name)
    return sorted(found)


def write() -> None:
    """Take hashes.txt anew."""
    from tools.make_environment import pins  # only here: it needs a package

    names = [*pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))]
    lines = [
        f"# SHA-256 of what constraints.txt installs, by content ({MACHINE}); `python -m tools.installed` compares."
    ]
    for name, package in sorted(present(names).items()):
        if not built_here(package):
            lines.append(f"{name}=={package.version} {content(package)}")
    HASHES.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    """Compare, or write."""
    here = f"Python {'.'.join(platform.python_version_tuple()[:2])}, {platform.system()}, {platform.machine()}"
    if here != MACHINE:
        print(f"hashes.txt is for {MACHINE}, and this is {here}", file=sys.stderr)
        return 2
    if "--write" in sys.argv:
        write()
        return 0
    different = faults()
    print(*different, sep="\n", end="\n" if different else "")
    print(f"{len(different)} packages differ from hashes.txt")
    if more := unknown():
        print("not in hashes.txt, so not compared:", ", ".join(more))
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
