"""Compare installed packages with the tested set by content: `python -m tools.installed`.

hashes.txt has a hash of each package's files, independent of the index, of the wheel's packing and
of pip's records, taken on Python 3.11, Linux, x86_64. Exit code 1 and a line for each package that
differs; unknown packages are named. `--write` takes hashes.txt from this environment.
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
HEADER = (
    f"# SHA-256 of what constraints.txt installs, by content ({MACHINE}); "
    "`python -m tools.installed` compares."
)


def belongs(name: str) -> bool:
    """Return whether a file is the package's: no bytecode, start script or record of the wheel."""
    path = PurePosixPath(name)
    if "__pycache__" in path.parts:
        return False
    if path.parts[0] == ".." and path.parent.name == "bin":  # a start script
        return False
    in_dist_info = any(part.endswith(".dist-info") for part in path.parts)
    return not in_dist_info or path.name == "entry_points.txt"


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file; "missing" where there is none."""
    if not path.is_file():
        return "missing"
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content(package: metadata.Distribution) -> str:
    """Return a hash of the paths and contents of a package's files, missing ones included."""
    total = hashlib.sha256()
    for file in sorted(package.files or (), key=str):
        name = file.as_posix()
        if belongs(name):
            digest = file_digest(Path(str(file.locate())))
            total.update(f"{name} {digest}\n".encode())
    return total.hexdigest()


def built_here(package: metadata.Distribution) -> bool:
    """Return whether this machine compiled the package: its tag is no platform of shared wheels."""
    return "-linux_" in (package.read_text("WHEEL") or "")


def present(names: list[str]) -> dict[str, metadata.Distribution]:
    """Return the installed ones of some packages."""
    packages = {}
    for name in names:
        try:
            packages[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
    return packages


def known() -> dict[str, tuple[str, str]]:
    """Return version and hash of each package of hashes.txt."""
    packages = {}
    for line in HASHES.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            pin, digest = line.split()
            name, version = pin.split("==")
            packages[name] = (version, digest)
    return packages


def faults() -> list[str]:
    """Return a line for each installed package of the tested set that differs from hashes.txt."""
    tested = known()
    lines = []
    for name, package in present([*tested]).items():
        version, digest = tested[name]
        installed = package.version
        if installed != version:
            lines.append(
                f"{name}=={installed}: hashes.txt has {version}, another build or version"
            )
        elif content(package) != digest:
            lines.append(f"{name}=={version}: its files are not those of hashes.txt")
    return lines


def unknown() -> list[str]:
    """Return the names of packages that are not in hashes.txt, except those compiled here."""
    tested = {*known(), "coevolve", "pip"}
    names = []
    for package in metadata.distributions():
        name = re.sub(r"[-_.]+", "-", package.name).lower()
        if name not in tested and not built_here(package):
            names.append(name)
    return sorted(names)


def write() -> None:
    """Write hashes.txt from this environment."""
    from tools.make_environment import pins  # requires the package packaging

    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    lines = [HEADER]
    for name, package in sorted(present([*pins(constraints)]).items()):
        if not built_here(package):
            lines.append(f"{name}=={package.version} {content(package)}")
    HASHES.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    """Compare, or write hashes.txt."""
    major, minor, _ = platform.python_version_tuple()
    machine = f"Python {major}.{minor}, {platform.system()}, {platform.machine()}"
    if machine != MACHINE:
        print(f"hashes.txt is for {MACHINE}, and this is {machine}", file=sys.stderr)
        return 2
    if "--write" in sys.argv:
        write()
        return 0
    different = faults()
    for line in different:
        print(line)
    print(f"{len(different)} packages differ from hashes.txt")
    not_compared = unknown()
    if not_compared:
        print("not in hashes.txt, so not compared:", ", ".join(not_compared))
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
