"""The import graph of the core: rooms, floors, upward arrows and circles.

`python -m tools.imports [REVISION]` prints it for the working tree, or for an older revision. Every
import counts: at module level, inside a function, and under TYPE_CHECKING.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"
CORE = "coevolve"
# The core names none of these. The sandbox is a library: it imports none of us.
NEIGHBOURS = ("tinyworld", "published", "reproduce")
# Public names, imported on first use, and the entry point.
DOORS = (CORE, "__main__")


def sources(revision: str | None = None) -> dict[str, str]:
    """Return the text of every module below src/coevolve by dotted name."""
    texts = {}
    if revision is None:
        for file in sorted((SRC / CORE).rglob("*.py")):
            name = module_name(file.relative_to(SRC))
            texts[name] = file.read_text("utf-8")
        return texts
    listing = git("ls-tree", "-r", "--name-only", revision, "src/coevolve")
    for path in listing.splitlines():
        if path.endswith(".py"):
            name = module_name(Path(path).relative_to("src"))
            texts[name] = git("show", f"{revision}:{path}")
    return texts


def git(*arguments: str) -> str:
    """Return what git prints."""
    command = ("git", *arguments)
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout


def module_name(path: Path) -> str:
    """Return the dotted name of a file; a package goes by its folder."""
    if path.stem == "__init__":
        path = path.parent
    return ".".join(path.with_suffix("").parts)


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
    while name:
        if name in modules:
            return name
        name, _, _ = name.rpartition(".")
    return None


def module_graph(modules: Mapping[str, str]) -> nx.DiGraph:
    """Return a graph with an arrow from every module of the core to each that it imports."""
    graph = nx.DiGraph()
    graph.add_nodes_from(modules)
    for module, text in modules.items():
        for name in imported_names(text):
            target = resolve(name, modules)
            is_import = target not in (None, module, CORE)
            if is_import:
                graph.add_edge(module, target)
    return graph


def room_of(module: str) -> str:
    """Return the folder or single file of the core that a module stands in."""
    inside = module.removeprefix(f"{CORE}.")
    room, _, _ = inside.partition(".")
    return room


def room_graph(graph: nx.DiGraph) -> nx.DiGraph:
    """Return the graph of the rooms: an arrow where a module of one imports one of the other."""
    rooms = nx.DiGraph()
    rooms.add_nodes_from(map(room_of, graph))
    for module, target in graph.edges:
        room = room_of(module)
        target_room = room_of(target)
        if room != target_room:
            rooms.add_edge(room, target_room)
    rooms.remove_nodes_from(DOORS)
    return rooms


def circles(graph: nx.DiGraph) -> list[list[str]]:
    """Return the groups of nodes that reach each other."""
    groups = nx.strongly_connected_components(graph)
    cyclic = [sorted(group) for group in groups if len(group) > 1]
    return sorted(cyclic)


def floors(rooms: nx.DiGraph) -> list[list[str]]:
    """Return the rooms by floor, lowest first: each stands above all that it imports.

    A circle counts as one room.
    """
    groups = nx.condensation(rooms)
    stories = []
    for generation in nx.topological_generations(groups.reverse()):
        story: set[str] = set()
        for group in generation:
            story |= groups.nodes[group]["members"]
        stories.append(sorted(story))
    return stories


def neighbours_named(modules: Mapping[str, str]) -> list[str]:
    """Return the core's modules that import a neighbour, with what they import."""
    lines = []
    for module, text in modules.items():
        for name in imported_names(text):
            package, _, _ = name.partition(".")
            if package in NEIGHBOURS:
                lines.append(f"{module} -> {name}")
    return sorted(lines)


def main(arguments: list[str]) -> None:
    """Print rooms, floors, arrows, circles and neighbours."""
    revision = arguments[0] if arguments else None
    modules = sources(revision)
    graph = module_graph(modules)
    rooms = room_graph(graph)
    stories = floors(rooms)
    arrows = rooms.number_of_edges()
    print(len(rooms), "rooms on", len(stories), "floors,", arrows, "arrows")
    for number, names in reversed([*enumerate(stories)]):
        print("  floor", number, *names)
    print("circles of rooms:", circles(rooms) or "none")
    print("circles of modules:", circles(graph) or "none")
    print("neighbours named by the core:", *neighbours_named(modules) or ["none"])


if __name__ == "__main__":
    main(sys.argv[1:])
