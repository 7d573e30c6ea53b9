"""The import graph of the core: rooms, floors, upward arrows and circles.

`python -m tools.imports [REVISION]` prints it for the working tree, or for an older revision. Every
import counts: at module level, inside a function, and under TYPE_CHECKING.
"""

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"
CORE = "coevolve"
NEIGHBOURS = ("tinyworld", "published", "reproduce")  # codesandbox is a library: it imports none of us

Graph = dict[str, set[str]]


def sources(revision: str | None = None) -> dict[str, str]:
    """Return the text of every module below src/coevolve by dotted name."""
    if revision is None:
        files = sorted((SRC / CORE).rglob("*.py"))
        return {module_name(file.relative_to(SRC)): file.read_text("utf-8") for file in files}
    listing = git("ls-tree", "-r", "--name-only", revision, "src/coevolve").splitlines()
    paths = [path for path in listing if path.endswith(".py")]
    return {
        module_name(Path(path).relative_to("src")): git("show", f"{revision}:{path}")
        for path in paths
    }


def git(*arguments: str) -> str:
    """Return what git prints."""
    command = ["git", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def module_name(path: Path) -> str:
    """Return the dotted name of a file; a package goes by its folder."""
    parts = path.with_suffix("").parts
    if parts[-1] == "__init__":
        parts = parts[:-1]
    return ".".join(parts)


def imported_names(text: str) -> Iterator[str]:
    """Yield every dotted name that a source imports, wherever the import stands."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield f"{node.module}.{alias.name}"


def resolve(name: str, modules: Mapping[str, str]) -> str | None:
    """Return the module that a dotted name belongs to; None if it is not one of these."""
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        candidate = ".".join(parts[:size])
        if candidate in modules:
            return candidate
    return None


def module_graph(modules: Mapping[str, str]) -> Graph:
    """Return {module: modules it imports}, for the modules of the core."""
    graph: Graph = {}
    for module, text in modules.items():
        targets = {resolve(name, modules) for name in imported_names(text)}
        graph[module] = {target for target in targets if target not in (None, module, CORE)}
    return graph


def room_of(module: str) -> str:
    """Return the folder or single file of the core that a module stands in."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def room_graph(graph: Graph) -> Graph:
    """Return {room: other rooms that its modules import}."""
    rooms: Graph = defaultdict(set)
    for module, targets in graph.items():
        room = room_of(module)
        if room in (CORE, "__main__"):  # public names, imported on first use, and the entry point
            continue
        rooms[room] |= {room_of(target) for target in targets} - {room}
    return dict(rooms)


def circles(graph: Graph) -> list[list[str]]:
    """Return the groups of nodes that reach each other (Tarjan's strongly connected components)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = lowest[node] = len(order)
        stack.append(node)
        for target in sorted(graph.get(node, ())):
            if target not in order:
                visit(target)
                lowest[node] = min(lowest[node], lowest[target])
            elif target in stack:
                lowest[node] = min(lowest[node], order[target])
        if lowest[node] == order[node]:
            start = stack.index(node)
            group = stack[start:]
            del stack[start:]
            if len(group) > 1:
                groups.append(sorted(group))

    for node in sorted(graph):
        if node not in order:
            visit(node)
    return groups


def floors(rooms: Graph) -> list[list[str]]:
    """Return the rooms by floor: each stands above all that it imports, circles counted as one."""
    together = {room: group[0] for group in circles(rooms) for room in group}
    level: dict[str, int] = {}

    def height(room: str, path: tuple[str, ...] = ()) -> int:
        if room not in level:
            home = together.get(room, room)
            below = [
                target
                for target in rooms.get(room, ())
                if together.get(target, target) != home and target not in path
            ]
            level[room] = 1 + max((height(target, (*path, room)) for target in below), default=-1)
        return level[room]

    for room in rooms:
        height(room)
    grouped: dict[int, list[str]] = defaultdict(list)
    for room, number in level.items():
        grouped[number].append(room)
    return [sorted(grouped[number]) for number in sorted(grouped)]


def neighbours_named(modules: Mapping[str, str]) -> list[str]:
    """Return the core's modules that import a neighbour, with what they import."""
    lines = []
    for module, text in modules.items():
        for name in imported_names(text):
            if name.split(".")[0] in NEIGHBOURS:
                lines.append(f"{module} -> {name}")
    return sorted(lines)


def main(arguments: list[str]) -> None:
    """Print rooms, floors, arrows, circles and neighbours."""
    modules = sources(arguments[0] if arguments else None)
    graph = module_graph(modules)
    rooms = room_graph(graph)
    arrows = sum(len(targets) for targets in rooms.values())
    stories = floors(rooms)
    print(f"{len(rooms)} rooms on {len(stories)} floors, {arrows} arrows")
    for number, names in reversed(list(enumerate(stories))):
        print(f"  floor {number}: {', '.join(names)}")
    print(f"circles of rooms: {circles(rooms) or 'none'}")
    print(f"circles of modules: {circles(graph) or 'none'}")
    print(f"neighbours named by the core: {', '.join(neighbours_named(modules)) or 'none'}")


if __name__ == "__main__":
    main(sys.argv[1:])
