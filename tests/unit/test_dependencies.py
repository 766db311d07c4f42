"""What installing netprof brings along: what it imports, and nothing that an extra is there for."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
IMPORTED = {"nvidia-ml-py": "pynvml", "prometheus-client": "prometheus_client"}


def names(of: str) -> set[str]:
    """Return the distributions in a list of pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text()
    found = re.search(rf"^{of} = \[(.*?)\](?: #.*)?$", text, re.M | re.S)
    assert found
    return set(re.findall(r'"([\w-]+)', found[1]))


def test_only_what_is_imported_is_installed_and_what_has_an_extra_is_not() -> None:
    needed = names("dependencies")
    for extra in ("capture", "chakra", "cluster", "remote", "stacks"):
        assert not needed & names(extra), f"[{extra}] is installed in any case"
    tops = ("netprof", "probes", "analysis")
    source = "\n".join(path.read_text() for top in tops for path in (ROOT / top).rglob("*.py"))
    assert len(needed) > 5
    for name in needed:
        assert re.search(rf"^ *(?:import|from) {IMPORTED.get(name, name)}\b", source, re.M), f"{name} is not imported"


def test_every_module_of_the_product_is_named_by_another() -> None:
    """A module that a merge leaves behind is noticed."""
    tops = {"netprof": "netprof", "probes": "netprof.probes", "analysis": "netprof.analysis"}
    paths = [path.relative_to(ROOT) for top in tops for path in (ROOT / top).rglob("*.py")]
    named, modules = set(), {}
    for path in paths:
        if path.parts[1] not in ("probes", "analysis"):  # links to the other two
            text = (ROOT / path).read_text()
            named |= set(re.findall(r"\bnetprof(?:\.\w+)+", text))
            for package, names in re.findall(r"from (netprof[\w.]*) import (\([^)]*\)|[^\n]*)", text):
                named |= {f"{package}.{name}" for name in re.findall(r"\w+", names)}
            modules[".".join((tops[path.parts[0]], *path.with_suffix("").parts[1:]))] = path.stem
    assert len(modules) > 400
    alone = ("__init__", "__main__", "build")
    assert [name for name, stem in modules.items() if stem not in alone and name not in named] == []
