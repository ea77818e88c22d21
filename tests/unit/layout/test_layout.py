"""The rooms of the repository and the one direction of imports, as docs/architecture.md says."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import relkit.commands
import relkit.reports

ROOT = Path(__file__).resolve().parents[3]

MAX_FILE_LINES = 500
MAX_FOLDER_FILES = 26
MAX_CORE_LINES = 3000

# Room -> the rooms that its files may import from. "ground" are the files of relkit/ itself and of
# the rooms in GROUND;
# "entry" are those of them that stand above the library: the package's API and the command line.
ALLOWED: Mapping[str, str] = {
    "commands": (
        "ground commands.launch_parts commands.shared commands.subcommands relkit.accounting "
        "relkit.checkpoint relkit.checkpoint.convert relkit.doctor relkit.flash_checkpoint "
        "relkit.fleet relkit.flight_recorder relkit.hang.collect relkit.hang_picture "
        "relkit.kubernetes relkit.launch relkit.launch.job relkit.launch.peers "
        "relkit.launch.recovery relkit.linkcheck relkit.net relkit.netcheck "
        "relkit.netcheck.measure "
        "relkit.netcheck.measure.probes relkit.netcheck.report relkit.netcheck.solve "
        "relkit.stacks relkit.ttp relkit.why reports.hangs reports.networks relkit.history "
        "relkit.job_page relkit.live_job relkit.nodes reports.jobs"
    ),
    "commands.launch_parts": (
        "ground commands.shared relkit.accounting relkit.flash_checkpoint.on_disk "
        "relkit.flash_checkpoint.replicas "
        "relkit.launch relkit.launch.accounting relkit.launch.elastic "
        "relkit.launch.flash_checkpoint relkit.launch.hang relkit.launch.incidents "
        "relkit.launch.job relkit.launch.metrics relkit.launch.history "
        "relkit.launch.netcheck relkit.launch.peers relkit.launch.recovery "
        "relkit.hook relkit.launch.replicas relkit.launch.spares relkit.launch.straggler "
        "relkit.launch.traced_calls "
        "relkit.launch.warm_standby relkit.linkcheck relkit.net relkit.netcheck.measure.probes "
        "relkit.straggler.transport relkit.ttp reports"
    ),
    "commands.shared": (
        "ground relkit.fleet relkit.hang relkit.hang_picture relkit.launch.hang "
        "relkit.launch.incidents relkit.launch.job relkit.launch.warm_standby "
        "relkit.netcheck relkit.netcheck.measure relkit.stacks reports reports.hangs "
        "relkit.netcheck.measure.probes relkit.netcheck.report relkit.netcheck.solve relkit.nodes "
        "reports.networks relkit.history relkit.live_job"
    ),
    "commands.subcommands": (
        "ground commands.shared relkit.data relkit.hang.collect relkit.netcheck "
        "relkit.netcheck.measure relkit.netcheck.measure.probes relkit.stacks "
        "relkit.stacks.dump relkit.straggler relkit.straggler.preflight "
        "relkit.straggler.present relkit.straggler.score relkit.straggler.traces "
        "relkit.straggler.transport relkit.timeline reports reports.drawing "
        "reports.straggler relkit.live_job relkit.nodes relkit.slurm"
    ),
    "entry": "ground relkit.flash_checkpoint.protection relkit.hook",
    "relkit.accounting": "ground",
    "relkit.checkpoint": "ground",
    "relkit.checkpoint.convert": "ground relkit.checkpoint",
    "relkit.data": "ground",
    "relkit.doctor": "ground relkit.hook relkit.stacks.engines",
    "relkit.flash_checkpoint": (
        "ground relkit.accounting relkit.checkpoint relkit.flash_checkpoint.on_disk "
        "relkit.flash_checkpoint.replicas relkit.flash_checkpoint.sharded "
        "relkit.flash_checkpoint.slots"
    ),
    "relkit.flash_checkpoint.deepspeed": (
        "ground relkit.accounting relkit.checkpoint relkit.flash_checkpoint "
        "relkit.flash_checkpoint.on_disk relkit.flash_checkpoint.protection"
    ),
    "relkit.flash_checkpoint.megatron": (
        "ground relkit.accounting relkit.checkpoint relkit.flash_checkpoint "
        "relkit.flash_checkpoint.on_disk relkit.flash_checkpoint.replicas"
    ),
    "relkit.flash_checkpoint.megatron_dist_ckpt": "relkit.flash_checkpoint.megatron",
    "relkit.flash_checkpoint.on_disk": "ground relkit.checkpoint relkit.flash_checkpoint.sharded",
    "relkit.flash_checkpoint.protection": "ground relkit.flash_checkpoint",
    "relkit.flash_checkpoint.replicas": "ground relkit.flash_checkpoint.slots",
    "relkit.flash_checkpoint.sharded": "ground relkit.checkpoint",
    "relkit.flash_checkpoint.slots": "ground",
    "relkit.fleet": "ground",
    "relkit.flight_recorder": (
        "ground relkit.hang relkit.hook relkit.stacks relkit.stacks.engines"
    ),
    "relkit.hang": "ground relkit.hook relkit.post_mortem relkit.stacks",
    "relkit.hang.collect": "ground relkit.fleet relkit.hang relkit.stacks",
    "relkit.hang.columns": "relkit.hook",
    "relkit.hang.detection": "ground relkit.hang relkit.hang.columns relkit.hook",
    "relkit.hang.links": "ground relkit.hang",
    "relkit.hang.suspicion": (
        "ground relkit.hang relkit.hang.columns relkit.hang.detection relkit.hook"
    ),
    "relkit.hang.live_sources": "ground relkit.hang relkit.hook",
    "relkit.hang_picture": "ground relkit.flight_recorder relkit.hang relkit.hook relkit.stacks",
    "relkit.history": "ground",
    "relkit.hook": "ground relkit.accounting",
    "relkit.kubernetes": "ground relkit.launch relkit.live_job",
    "relkit.job_page": (
        "ground relkit.accounting relkit.hang relkit.hang_picture relkit.history relkit.live_job "
        "relkit.straggler.transport"
    ),
    "relkit.launch": (
        "ground relkit.launch.elastic relkit.launch.hang relkit.launch.job relkit.post_mortem"
    ),
    "relkit.launch.accounting": (
        "ground relkit.accounting relkit.hang.suspicion relkit.hook relkit.launch.job"
    ),
    "relkit.launch.control": "ground relkit.launch.job relkit.net",
    "relkit.launch.elastic": (
        "ground relkit.launch.control relkit.launch.job relkit.net relkit.post_mortem"
    ),
    "relkit.launch.flash_checkpoint": (
        "ground relkit.checkpoint relkit.flash_checkpoint relkit.flash_checkpoint.on_disk "
        "relkit.flash_checkpoint.sharded relkit.flash_checkpoint.slots relkit.launch.job "
        "relkit.launch.replicas"
    ),
    "relkit.launch.hang": (
        "ground relkit.bootstrap relkit.flight_recorder relkit.hang relkit.hang.columns "
        "relkit.hang.detection relkit.hang.links relkit.hang.live_sources relkit.hang.suspicion "
        "relkit.hook relkit.launch.hang.links relkit.launch.job "
        "relkit.nccl_ras relkit.post_mortem relkit.stacks relkit.stacks.dump "
        "relkit.stacks.engines"
    ),
    "relkit.launch.hang.links": (
        "ground relkit.hang.links relkit.launch.job relkit.net relkit.netcheck "
        "relkit.netcheck.measure relkit.netcheck.measure.probes"
    ),
    "relkit.launch.incidents": "ground relkit.launch.job",
    "relkit.launch.history": "ground relkit.accounting relkit.history relkit.launch.job",
    "relkit.launch.job": (
        "ground relkit.hang relkit.hook relkit.net relkit.post_mortem relkit.stacks"
    ),
    "relkit.launch.metrics": (
        "ground relkit.accounting relkit.hook relkit.launch.incidents relkit.launch.job "
        "relkit.metrics relkit.straggler"
    ),
    "relkit.launch.traced_calls": "ground relkit.hook relkit.launch.job",
    "relkit.launch.replicas": (
        "ground relkit.flash_checkpoint.replicas relkit.flash_checkpoint.slots relkit.launch.job "
        "relkit.net"
    ),
    "relkit.launch.netcheck": (
        "ground relkit.fleet relkit.launch.job relkit.net relkit.netcheck "
        "relkit.netcheck.measure relkit.netcheck.measure.probes relkit.netcheck.report "
        "relkit.netcheck.solve relkit.straggler.preflight"
    ),
    "relkit.launch.peers": "ground",
    "relkit.launch.recovery": "ground relkit.hook relkit.launch.job relkit.net relkit.ttp",
    "relkit.launch.spares": "ground relkit.launch.job relkit.net",
    "relkit.launch.straggler": (
        "ground relkit.launch.job relkit.straggler relkit.straggler.collect "
        "relkit.straggler.present relkit.straggler.score relkit.straggler.transport"
    ),
    "relkit.launch.warm_standby": "ground relkit.launch.job relkit.post_mortem",
    "relkit.metrics": "ground relkit.accounting relkit.hook relkit.straggler",
    "relkit.live_job": (
        "ground relkit.accounting relkit.checkpoint relkit.flash_checkpoint "
        "relkit.flash_checkpoint.on_disk relkit.flash_checkpoint.slots relkit.hook "
        "relkit.straggler.present relkit.straggler.transport"
    ),
    "relkit.megatron_adaptor": (
        "ground relkit.checkpoint relkit.flash_checkpoint relkit.flash_checkpoint.megatron "
        "relkit.flash_checkpoint.slots relkit.hook relkit.ttp"
    ),
    "relkit.nccl_ras": "ground relkit.hook",
    "relkit.linkcheck": "ground",
    "relkit.nodes": "ground relkit.fleet relkit.history",
    "relkit.slurm": "ground relkit.history relkit.nodes",
    "relkit.net": "ground",
    "relkit.netcheck.measure": (
        "ground relkit.fleet relkit.net relkit.netcheck relkit.netcheck.measure.probes "
        "relkit.netcheck.solve"
    ),
    "relkit.netcheck.measure.probes": "ground relkit.net relkit.netcheck",
    "relkit.netcheck.report": "ground relkit.netcheck",
    "relkit.netcheck.solve": "relkit.netcheck",
    "relkit.post_mortem": "ground",
    "relkit.stacks": "ground",
    "relkit.stacks.dump": "ground relkit.hook relkit.stacks relkit.stacks.engines",
    "relkit.stacks.engines": "ground relkit.hook relkit.stacks",
    "relkit.straggler.collect": "ground relkit.hook relkit.straggler",
    "relkit.straggler.preflight": (
        "ground relkit.netcheck relkit.netcheck.report relkit.netcheck.solve"
    ),
    "relkit.straggler.present": "ground relkit.straggler relkit.straggler.score",
    "relkit.straggler.score": "ground relkit.straggler",
    "relkit.straggler.traces": "ground relkit.flight_recorder relkit.straggler",
    "relkit.straggler.transport": "ground relkit.hook relkit.straggler",
    "relkit.timeline": (
        "ground relkit.accounting relkit.hook relkit.stacks relkit.stacks.dump "
        "relkit.stacks.engines relkit.straggler.collect"
    ),
    "relkit.trainer": (
        "ground relkit.trainer.config relkit.trainer.core relkit.trainer.data "
        "relkit.trainer.megatron relkit.trainer.run"
    ),
    "relkit.trainer.checkpointing": (
        "ground relkit.checkpoint relkit.trainer.config relkit.trainer.core "
        "relkit.trainer.megatron relkit.ttp"
    ),
    "relkit.trainer.config": "ground relkit.data",
    "relkit.trainer.core": (
        "ground relkit.checkpoint relkit.trainer.config relkit.trainer.data "
        "relkit.trainer.kernels relkit.trainer.telemetry relkit.ttp"
    ),
    "relkit.trainer.data": "ground relkit.data relkit.trainer.config",
    "relkit.trainer.kernels": "relkit.trainer.config",
    "relkit.trainer.megatron": (
        "ground relkit.trainer.config relkit.trainer.core relkit.trainer.data"
    ),
    "relkit.trainer.run": (
        "ground relkit.accounting relkit.checkpoint relkit.hook relkit.trainer.checkpointing "
        "relkit.trainer.config relkit.trainer.core relkit.trainer.data relkit.trainer.kernels "
        "relkit.trainer.telemetry relkit.ttp"
    ),
    "relkit.trainer.telemetry": "ground",
    "relkit.ttp": "ground relkit.checkpoint relkit.hook relkit.net",
    "relkit.why": (
        "ground relkit.accounting relkit.flight_recorder relkit.nccl_ras relkit.stacks "
        "relkit.why.packed relkit.why.rules"
    ),
    "relkit.why.packed": "ground relkit.flight_recorder",
    "reports": "ground relkit.accounting relkit.stacks reports.drawing reports.flames",
    "reports.drawing": "ground relkit.stacks",
    "reports.flames": "ground relkit.stacks reports.drawing",
    "reports.hangs": (
        "ground relkit.hang relkit.hang_picture relkit.stacks reports reports.drawing"
    ),
    "reports.jobs": (
        "ground relkit.accounting relkit.job_page relkit.live_job "
        "relkit.straggler relkit.straggler.present reports reports.drawing reports.hangs "
        "reports.straggler"
    ),
    "reports.networks": "ground relkit.netcheck reports reports.drawing",
    "reports.straggler": "ground relkit.straggler relkit.straggler.present reports reports.drawing",
}

# torch is slow to start: only what runs inside a job, or in a child made for it, imports it.
TORCH_ROOMS = (
    "relkit.checkpoint.convert",
    "relkit.flash_checkpoint",
    "relkit.launch",
    "relkit.megatron_adaptor",
    "relkit.trainer",
    "relkit.ttp",
)
TORCH_FILES = (
    "relkit/linkcheck/peer_copies.py",
    "relkit/checkpoint/torch_file.py",
    "relkit/checkpoint/tensor_list.py",
    "relkit/checkpoint/rng_state.py",
)
TORCH_FOLDERS = ("relkit/netcheck/measure/probes",)
CLICK_FILES = ("relkit/cli.py", "relkit/command_group.py", "relkit/config/apply.py")
GROUND = (
    "relkit", "relkit.config", "relkit.faults", "relkit.files", "relkit.process", "relkit.text",
)  # fmt: skip
ENTRY = ("relkit", "relkit.cli", "relkit.__main__")


def python_files(folder: str) -> list[Path]:
    # relkit/commands and relkit/reports are links to folders that are looked at by themselves.
    linked = {ROOT / "relkit" / name for name in ("commands", "reports", "_examples")}
    paths = sorted((ROOT / folder).rglob("*.py"))
    return [path for path in paths if linked.isdisjoint(path.parents)]


@cache
def tree(path: Path) -> ast.Module:
    """A file, parsed once for all tests of this folder."""
    return ast.parse(path.read_text())


@cache
def import_statements(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """All of a file, wherever in it they stand."""
    return tuple(
        node for node in ast.walk(tree(path)) if isinstance(node, (ast.Import, ast.ImportFrom))
    )


@cache
def imported(path: Path) -> frozenset[str]:
    """Every dotted name that a file imports."""
    names: set[str] = set()
    for node in import_statements(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names)


def module_name(path: Path) -> str:
    inside = path.relative_to(ROOT).with_suffix("").parts
    inside = inside if inside[0] == "relkit" else ("relkit", *inside)
    return ".".join(inside).removesuffix(".__init__")


@cache
def modules() -> Mapping[str, Path]:
    """Every module of relkit, its commands and its reports."""
    folders = ("relkit", "commands", "reports")
    return {module_name(path): path for folder in folders for path in python_files(folder)}


def room_of(module: str) -> str:
    """The folder that a module is in, as the table above calls it."""
    if module in ENTRY:
        return "entry"
    path = modules()[module]
    folder = ".".join(path.parent.relative_to(ROOT).parts)
    return "ground" if folder in GROUND else folder


@cache
def module_imports() -> Mapping[str, frozenset[str]]:
    """Module -> the modules of ours that it imports."""
    ours = modules()
    return {
        # `import relkit` alone, for its version, ties nobody to the API's rooms.
        name: frozenset((imported(path) & ours.keys()) - {name, "relkit"} - packages(path))
        for name, path in ours.items()
    }


def packages(path: Path) -> set[str]:
    """Packages named only on the way to a module in them: `from relkit.hook import reader`."""
    passed: set[str] = set()
    for node in import_statements(path):
        if isinstance(node, ast.ImportFrom) and node.module and node.module in modules():
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            if inner <= modules().keys():
                passed.add(node.module)
    return passed


def cycles(edges: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """What remains once everything that leads nowhere is taken away: the circles, and what
    leads into them."""
    left = {name: set(targets) for name, targets in edges.items()}
    while ends := [name for name, targets in left.items() if not targets & left.keys()]:
        for name in ends:
            del left[name]
    return [[name, *sorted(targets & left.keys())] for name, targets in sorted(left.items())]


def room_imports(imports: Mapping[str, frozenset[str]]) -> Mapping[str, frozenset[str]]:
    rooms: dict[str, set[str]] = {}
    for module, targets in imports.items():
        here = rooms.setdefault(room_of(module), set())
        here |= {room_of(target) for target in targets} - {room_of(module)}
    return {room: frozenset(targets) for room, targets in rooms.items()}


def package_of(room: str) -> str:
    """The folder directly below relkit/ that a room is in: relkit.hang of relkit.hang.links."""
    return ".".join(room.split(".")[:2])


def package_imports(imports: Mapping[str, frozenset[str]]) -> Mapping[str, frozenset[str]]:
    folded: dict[str, set[str]] = {}
    for room, targets in room_imports(imports).items():
        here = folded.setdefault(package_of(room), set())
        here |= {package_of(target) for target in targets} - {package_of(room)}
    return {package: frozenset(targets) for package, targets in folded.items()}


def test_no_module_imports_itself_in_a_circle() -> None:
    assert cycles(module_imports()) == []


def test_no_room_imports_itself_in_a_circle() -> None:
    assert cycles(room_imports(module_imports())) == []


def test_no_package_imports_itself_in_a_circle() -> None:
    """Rooms of one folder count together: none may lead back to it by way of another folder."""
    assert cycles(package_imports(module_imports())) == []


def test_a_circle_through_an_inner_room_is_seen() -> None:
    imports = {
        "relkit.hang_picture.folder": frozenset({"relkit.hang.collect.gather"}),
        "relkit.hang.model": frozenset({"relkit.hang_picture.folder"}),
    }
    assert cycles(room_imports(imports)) == []
    assert [names[0] for names in cycles(package_imports(imports))] == [
        "relkit.hang",
        "relkit.hang_picture",
    ]


def test_a_circle_is_seen() -> None:
    edges = {"a": frozenset("b"), "b": frozenset("c"), "c": frozenset("a"), "d": frozenset("a")}
    assert [names[0] for names in cycles(edges)] == ["a", "b", "c", "d"]
    assert cycles({"a": frozenset("b"), "b": frozenset(), "d": frozenset("ab")}) == []


def test_every_edge_between_rooms_is_in_the_table_and_every_entry_is_used() -> None:
    seen = {room: targets for room, targets in room_imports(module_imports()).items() if targets}
    allowed = {room: frozenset(targets.split()) for room, targets in ALLOWED.items()}
    assert seen == allowed


def test_what_saves_and_restores_knows_neither_trainer_nor_network_check() -> None:
    for module, targets in module_imports().items():
        if module.startswith(("relkit.ttp", "relkit.checkpoint", "relkit.net.")):
            assert not any(t.startswith(("relkit.trainer", "relkit.netcheck")) for t in targets)


def test_the_two_links_exist_and_point_to_the_real_folders() -> None:
    for name in ("commands", "reports"):
        link = ROOT / "relkit" / name
        assert link.is_symlink()
        assert link.resolve() == ROOT / name
    assert Path(relkit.commands.__path__[0]).resolve() == ROOT / "commands"
    assert Path(relkit.reports.__path__[0]).resolve() == ROOT / "reports"


def of_product() -> Mapping[str, frozenset[str]]:
    """What each file of relkit/ imports, by the file's place in the checkout."""
    return {str(path.relative_to(ROOT)): imported(path) for path in python_files("relkit")}


def test_the_library_imports_neither_commands_nor_reports_nor_click() -> None:
    shown = ("relkit.commands", "relkit.reports")
    assert {
        file for file, names in of_product().items() if any(map(starts(*shown), names))
    } == set()
    with_click = {file for file, names in of_product().items() if any(map(starts("click"), names))}
    assert with_click == set(CLICK_FILES)


def test_torch_is_imported_only_where_jobs_are_run() -> None:
    with_torch = {file for file, names in of_product().items() if any(map(starts("torch"), names))}
    folders = tuple(f"{room.replace('.', '/')}/" for room in TORCH_ROOMS)
    elsewhere = {file for file in with_torch if not file.startswith((*folders, *TORCH_FOLDERS))}
    assert elsewhere == set(TORCH_FILES)


def starts(*packages: str) -> Callable[[str], bool]:
    """Whether a dotted name is one of these packages, or in one."""
    return lambda name: any(name == each or name.startswith(f"{each}.") for each in packages)


def test_no_file_has_outgrown_its_one_job() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for folder in ("relkit", "commands", "reports", "tests", "benchmarks", "native")
        for path in sorted((ROOT / folder).rglob("*.[pch]*"))
        if path.suffix in (".py", ".c", ".h")
        and (lines := path.read_text().count("\n")) > MAX_FILE_LINES
    }
    assert not long


def test_no_folder_has_outgrown_its_room() -> None:
    folders = ("relkit", "commands", "reports", "benchmarks", "tools", "tests")
    counts = Counter(
        str(path.parent.relative_to(ROOT)) for folder in folders for path in python_files(folder)
    )
    assert {room: count for room, count in counts.items() if count > MAX_FOLDER_FILES} == {}


def test_the_trainers_core_can_be_read_in_one_sitting() -> None:
    files = python_files("relkit/trainer/core")
    assert sum(path.read_text().count("\n") for path in files) < MAX_CORE_LINES
    guide = (ROOT / "docs" / "trainer.md").read_text()
    assert [p.name for p in files if p.name != "__init__.py" and p.name not in guide] == []
