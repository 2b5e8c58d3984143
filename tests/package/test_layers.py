"""The imports: arrows run one way, and ``import convgrad`` stays light."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

import convgrad
from tests.package.syntax import statements
from tests.support.places import CAMPAIGNS, DOCS, SOURCES, TESTS

# What a package holds, in order: a module may import from earlier entries only. An entry is a module, or a package and
# all beneath it but what has an entry of its own ("llvm.execute"). A package that has an order too is held by both.
# What an __init__ publishes comes last in its package, unless it has an entry: that of the root has the public names,
# for adapters and the command line only.
WORDS = {
    "": (
        "array_types words parameters errors disk cached float_environment starting formats host spec descriptor "
        "notation plan engines arrays functional graph verify files verify.cases cases __init__ torch jax scale dask "
        "verify.testing testing cli conformance __main__"
    ),
    "arrays": "libraries mapped overlap",
    "arrays.libraries": "library dlpack cuda_interface torch jax",
    "spec": (
        "rules operators layouts geometry foreign check shapes channels extents readings problem activation "
        "derivatives formulas work winograd.tile_order winograd.filtering winograd.algorithms winograd.slices order "
        "winograd.choice pieces subproblems image_cuts bound samples chains winograd ordered ordered_samples "
        "exact_result elementwise"
    ),
    "spec.elementwise": (
        "arithmetic functions definition wide angles maps cells selections powers losses coefficients steps table sums "
        "combinations"
    ),
    "spec.winograd": "tile_order filtering algorithms slices choice execution sizes bound",
    "verify.cases": (
        "case naming place tags knobs descriptors benchdnn posed lying driver_flags miopen hlo_text mlir_text mlir hlo "
        "json_values hipdnn onnx_tensors onnx lines onednn_graph sidecar scheme aten_header aten strange "
        "collection"
    ),
    "cli": (
        "console exits parsers arguments progress checks times report verify_options verify_cases sources run_call "
        "run_cases run_graph run_pieces run explain_json explain bench probe verify_candidates verify_again "
        "verify_report verify_resume verify_others verify conformance conformance_tests calibrate info"
    ),
    "cli.parsers": "parser texts run verify conformance explain probe bench calibrate info",
    "verify": (
        "verdict declared terms rows gather granule sums wide reference parts cost compare winograd bound exact "
        "truncation adversarial fill fill_graph judge diagnose copies c_function foreign guardian isolate witness "
        "pardon claim repeat check tolerance check_certificate certificate probe cases testing"
    ),
    "verify.judge": ("names model sample conspire lost alone shared errors statistics partials common limits naming"),
    "verify.judge.statistics": "finding size bias groups narrow grid filters",
    "verify.diagnose": (
        "place sums fit make attributes overwritten missing channels numbers ranges partly mutants marks replay running"
    ),
    "verify.probe": "masks asker tree replay sample blocks draw",
    "plan": (
        "reach constants machine tables pairs recipe records regions tree tiling cost forward_nest gemm stencils "
        "kn2row split_k winograd kernels choose passes cuda"
    ),
    "plan.gemm": "constants spec cuts cost candidates schedule",
    "plan.stencils": "constants grouped grouped_cost grouped_schedule spatial spatial_cost spatial_schedule",
    "plan.kn2row": "constants spec cuts cost schedule",
    "plan.winograd": "constants plans spec schedule",
    "plan.split_k": "constants recipe nest operands taps segments cuts cost kernels schedule portions",
    "plan.cuda": "nest tables recipe vectors plan",
    "engines": (
        "addresses tensors engine openmp settings numpy products mailbox scratch llvm team pool pools llvm.execute "
        "llvm.tune llvm.calibrate llvm.samples llvm.winograd llvm.elementwise llvm.engine cuda"
    ),
    "engines.cuda": "driver kept grid operands single tile kernels engine",
    "engines.llvm": (
        "emit intrinsics tiles arguments pairs convert tree microkernel store packing split_k gemm stencils kn2row "
        "driver squares object_cache jit amx tried added speeds isas wait execute tune calibrate samples winograd "
        "elementwise engine"
    ),
    "engines.llvm.elementwise": "arithmetic maps sums trees largest combinations indexed stages run",
    "engines.llvm.winograd": "vectors into sums back tasks run",
    "engines.llvm.split_k": "segment tile stencil nest pack gemm_nest stencil_nest pack_portions pack_cells portions",
    "engines.llvm.gemm": "arguments pack segments steps micro_tile portion_tile amx region output_stationary",
    "engines.llvm.stencils": "grouped spatial_tile spatial",
    "engines.llvm.kn2row": "tap_adds nest",
    "scale": (
        "memory source target cut takes plan prefetch durable identity finished head checkpoint progress call run"
    ),
    "jax": "frame site gate handler primitive call operators run window general kinds lax reproducible",
    "dask": "blocks chunks tasks fused graph call operators run",
    "verify.testing": "convolution products gradcheck layers same_bits",
    "graph": "limits kinds model resolve fuse given infer partition graph outline document reader writer explain dot",
    "torch": (
        "errors recorded extents attributes schema problems passes cuda kernels traced strides operators flops refused "
        "arguments plain complex_sums expanded instead overrides sizes functional grad fingerprint training varying "
        "pristine modules steps report"
    ),
    "torch.training": (
        "row arguments caller expected tensors replay channels elements functions activations sums products norms "
        "weights softmax losses images grids indexed powers attention cells layers ctc composites numbers optimizers "
        "random fixed groups replacements hooks context watch audit record processes"
    ),
}
ORDERS = {package: modules.split() for package, modules in WORDS.items()}


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCES).with_suffix("").parts)


MODULES = {name_of(p): p for p in sorted(SOURCES.rglob("*.py"))}


def is_in(module: str, package: str) -> bool:
    return not package or module.startswith(f"{package}.")


def module_of(name: str) -> str:
    """Return the module that has what is imported under a name."""
    while name and name not in MODULES and f"{name}.__init__" not in MODULES:
        name = name.rpartition(".")[0]
    return name if name in MODULES else f"{name}.__init__".removeprefix(".")


def imported(path: Path) -> set[str]:
    """Return the modules of convgrad that a file imports, wherever in the file."""
    found: set[str] = set()
    for node in statements(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.module, f"{path}: imports are absolute"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {module_of(name.partition(".")[2]) for name in found if name.partition(".")[0] == "convgrad"}


def entry_of(module: str, package: str, entries: Sequence[str]) -> str:
    """Return the entry of a package's order that a module belongs to, the longest that fits; else "" ."""
    inner = module.removeprefix(f"{package}.")
    return max((e for e in entries if inner == e or is_in(inner, e)), key=len, default="")


def forbidden(module: str, other: str, orders: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the packages in whose order ``module`` comes before ``other``, and so must not import it."""
    found = []
    for package, entries in orders.items():
        if is_in(module, package) and is_in(other, package):
            mine, its = (entry_of(m, package, entries) for m in (module, other))
            place = {"": len(entries)} | {entry: at for at, entry in enumerate(entries)}  # "" is its __init__
            if place[its] > place[mine]:
                found.append(package)
    return found


def test_every_module_has_a_place() -> None:
    for package, entries in ORDERS.items():
        inside = {m for m in MODULES if is_in(m, package)} - {f"{package}.__init__"}
        assert {m for m in inside if not entry_of(m, package, entries)} == set()
        assert {entry_of(m, package, entries) for m in inside} == set(entries), package
        assert len(set(entries)) == len(entries), package


def test_arrows_run_one_way() -> None:
    found = {
        (module, other): forbidden(module, other, ORDERS) for module in MODULES for other in imported(MODULES[module])
    }
    assert {arrow: packages for arrow, packages in found.items() if packages} == {}


# An order made up, and what may import what under it: nothing else.
MADE_UP = {
    "": ("low", "whole", "high"),
    "whole": ("first", "deep", "last", "deep.late"),
    "whole.deep": ("a", "b", "late"),
}
ALLOWED = {
    "low": "",
    "whole.first": "low",
    "whole.deep.a": "low whole.first",
    "whole.deep.b": "low whole.first whole.deep.a",
    "whole.deep.__init__": "low whole.first whole.deep.a whole.deep.b",
    "whole.last": "low whole.first whole.deep.a whole.deep.b whole.deep.__init__",
    "whole.deep.late": "low whole.first whole.deep.a whole.deep.b whole.last",
    "whole.__init__": "low whole.first whole.deep.a whole.deep.b whole.deep.__init__ whole.deep.late whole.last",
}


@pytest.mark.parametrize("module", ALLOWED)
def test_an_order_says_which_arrows_run_backwards(module: str) -> None:
    others = ALLOWED.keys() - {module}
    assert {other for other in others if not forbidden(module, other, MADE_UP)} == set(ALLOWED[module].split())


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_import_is_light() -> None:
    loaded = python("import sys, convgrad; print(' '.join(sys.modules))").split()
    heavy = {"llvmlite", "torch", "jax", "scipy", "sklearn", "matplotlib", "safetensors", "argparse", "hypothesis"}
    heavy.add("ml_dtypes")  # version 0.7.0 takes four times as long as NumPy
    assert not heavy & set(loaded)
    assert not {"convgrad.scale", "convgrad.dask", "convgrad.testing"} & set(loaded)


def test_the_import_of_no_module_imports_ml_dtypes() -> None:
    """ml_dtypes is imported at the first use of a dtype. While a module is imported late, that would wait forever."""
    ours = [name for name in MODULES if not re.search("torch|jax|dask|__main__", name)]  # JAX imports it
    names = " ".join(f"convgrad.{name}" for name in ours)
    code = (
        f"import importlib, sys; [*map(importlib.import_module, {names!r}.split())]; print('ml_dtypes' in sys.modules)"
    )
    assert python(code) == "False"


@pytest.mark.parametrize("name", ["cases", "testing"])
def test_rooms_of_verify_have_public_paths(name: str) -> None:
    public, room = (importlib.import_module(f"convgrad.{path}") for path in (name, f"verify.{name}"))
    assert public.__all__ == room.__all__
    assert all(getattr(public, each) is getattr(room, each) for each in room.__all__)


@pytest.mark.parametrize("name", ["dask", "graph", "jax", "scale", "testing", "torch", "verify"])
def test_what_is_not_imported_says_how(name: str) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute '{name}' until .*: import convgrad.{name}$"):
        convgrad.__getattr__(name)
    with pytest.raises(AttributeError, match=r"has no attribute 'padding'$"):
        convgrad.__getattr__("padding")


def in_functions(tree: ast.AST) -> Iterator[tuple[ast.FunctionDef, ast.ImportFrom | ast.Import]]:
    """Yield the imports in functions, with the function."""
    for function in statements(tree):
        if isinstance(function, ast.FunctionDef):
            yield from ((function, n) for n in statements(function) if isinstance(n, ast.ImportFrom | ast.Import))


def test_forks_wait_for_what_is_imported_or_cached_later() -> None:
    """A child that is forked meanwhile would inherit locks: of a module, and of Python 3.11's cached properties."""
    for module, path in MODULES.items():
        text = path.read_text()
        inner = re.search(r"^ +(?:from|import) .*convgrad", text, re.MULTILINE) and not module.startswith("cli.")
        for function, node in in_functions(ast.parse(text)) if inner else ():
            if "convgrad" in ast.unparse(node):
                assert [ast.unparse(each) for each in function.decorator_list] == ["deferred"], f"{path}:{node.lineno}"
                *_, imports, result = function.body
                assert (imports, type(result)) == (node, ast.Return), f"{path}:{node.lineno} does more than import"
        assert not re.search(
            r"import .*cached_property$|functools\.cached_property\(", text.replace(OURS, ""), re.MULTILINE
        )


OURS = "from convgrad.cached import cached_property"


def test_files_stay_small() -> None:
    paths = (*MODULES.values(), *TESTS.rglob("*.py"), *CAMPAIGNS.glob("*.py"))
    sizes = {str(path): len(path.read_text().splitlines()) for path in paths}
    assert {path: lines for path, lines in sizes.items() if lines > 400} == {}


MAX_LINES = 60  # of a function, which then fits a screen


@cache
def functions(module: str) -> list[tuple[str, int, int]]:
    """Return the functions and methods of a module, also inner ones: names, lines, and numbers of parameters."""
    found = [node for node in statements(ast.parse(MODULES[module].read_text())) if isinstance(node, ast.FunctionDef)]
    return [(one.name, (one.end_lineno or 0) - one.lineno + 1, len(parameters(one))) for one in found]


@pytest.mark.parametrize("package", ["spec", "plan", "engines"])
def test_functions_fit_a_screen(package: str) -> None:
    rooms = [module for module in MODULES if is_in(module, package)]
    lines = {f"{room}.{name}": count for room in rooms for name, count, _ in functions(room)}
    assert {name: count for name, count in lines.items() if count > MAX_LINES} == {}


MAX_PARAMETERS = 6  # values that always travel together are one parameter
OPERATIONS = "engines.llvm.elementwise"  # has no plans, and its values no records


@pytest.mark.parametrize("package", ["plan", "engines"])
def test_functions_take_few_parameters(package: str) -> None:
    rooms = [module for module in MODULES if is_in(module, package) and not is_in(module, OPERATIONS)]
    counts = {f"{room}.{name}": count for room in rooms for name, _, count in functions(room)}
    assert {name: count for name, count in counts.items() if count > MAX_PARAMETERS} == {}


def parameters(function: ast.FunctionDef) -> list[str]:
    """Return the names of a function's parameters, except those of the object or class that has it."""
    all_of_them = function.args
    names = [one.arg for one in (*all_of_them.posonlyargs, *all_of_them.args, *all_of_them.kwonlyargs)]
    return [name for name in names if name not in ("self", "cls")]


@pytest.mark.parametrize(
    "package", ["spec", "engines", "arrays", "functional", "torch", "jax", "dask", "verify/testing"]
)
def test_every_module_has_a_place_in_the_architecture(package: str) -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\w+\.py", page))
    assert {path.name for path in (SOURCES / package).rglob("*.py")} <= named | {"__init__.py"}


def test_every_module_says_what_it_knows() -> None:
    for path in MODULES.values():
        text = re.match(r'(?:#.*\n)*"""(\S.*?)(?:\n|""")', path.read_text())  # to parse all takes half a second
        assert text, path
        assert text[1].endswith((".", ":")), path
