"""How arms are found: a file here, an entry point elsewhere; docs/arms.md's example is run as it stands."""

import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch

from harness import arms, plugins
from harness.errors import PluginError, UnknownName
from harness.operands import make_operands

DOCS = Path(__file__).parents[3] / "docs" / "arms.md"

KEYS = {
    "cake_det": "",
    "cake_nondet": "",
    "cublas_loop": "c",
    "cublas_loop_autograd": "a",
    "cublas_loop_graph": "g",
    "cudnn": "d",
    "previous_det": "",
    "previous_nondet": "",
    "quack": "q",
    "reference": "",
    "torch_grouped_mm": "t",
}


@pytest.fixture
def entry_point(tmp_path, monkeypatch):
    """Return a function that registers a module's ARM under a name, as another distribution would."""
    monkeypatch.syspath_prepend(tmp_path)
    registered = []

    def fake_entry_points(*, group, name=None):
        return [e for e in registered if e.group == group and name in (None, e.name)]

    monkeypatch.setattr(plugins, "entry_points", fake_entry_points)

    def register(name, module, source):
        (tmp_path / f"{module}.py").write_text(source)
        registered.append(EntryPoint(name=name, value=f"{module}:ARM", group="cake_bench.arms"))

    yield register
    for entry in registered:
        sys.modules.pop(entry.module, None)


def test_every_arm_loads_here_with_its_key_and_a_note():
    loaded = {name: arms.load(name).info for name in plugins.names("arms")}

    assert {name: info.key for name, info in loaded.items()} == KEYS
    assert all(info.note for info in loaded.values())


def test_only_our_two_variants_of_either_revision_are_ours():
    ours = ["cake_det", "cake_nondet", "previous_det", "previous_nondet"]

    assert [name for name in KEYS if arms.load(name).info.is_cake] == ours


def test_loading_arms_imports_no_optional_library():
    for name in plugins.names("arms"):
        arms.load(name)

    assert not {"cudnn", "quack"} & set(sys.modules)


def test_the_example_of_the_docs_runs_as_an_arm_of_another_distribution(entry_point, new_case, new_machine):
    (example,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), flags=re.DOTALL)
    entry_point("bmm_padded", "my_arms_bmm_padded", example)
    case = new_case("fwd", (3, 0, 5))
    operands = make_operands(case, seed=0, device=torch.device("cpu"))

    arm = arms.load("bmm_padded")
    output = arm.prepare(case, operands).launch()

    expected = arms.load("reference").prepare(case, operands).launch()
    assert arms.names()[-1] == "bmm_padded"
    assert arm.why_not(case, new_machine()) is None
    assert arm.why_not(new_case("dX"), new_machine()) == "bmm_padded does fwd only"
    torch.testing.assert_close(output, expected, rtol=2**-7, atol=2**-7)


def test_the_docs_list_every_arm_with_its_key():
    rows = dict(re.findall(r"^\| `(\w+)` \| (\w?) ?\|", DOCS.read_text(), flags=re.MULTILINE))

    assert rows == KEYS


def test_an_entry_point_that_fails_to_import_is_named(entry_point):
    entry_point("broken", "my_arms_broken", "import no_such_library_here")

    with pytest.raises(PluginError) as caught:
        arms.load("broken")

    assert str(caught.value) == (
        "entry point cake_bench.arms:broken (my_arms_broken:ARM) fails to import:"
        " ModuleNotFoundError: No module named 'no_such_library_here'"
    )


def test_a_file_that_fails_to_import_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "harness.arms.cudnn", None)

    with pytest.raises(PluginError, match=r"^arm 'cudnn' fails to import: ModuleNotFoundError"):
        arms.load("cudnn")


def test_an_arm_that_calls_itself_otherwise_is_refused(entry_point):
    entry_point("mine", "my_arms_misnamed", "from harness.arms.cublas_loop import ARM")

    with pytest.raises(PluginError) as caught:
        arms.load("mine")

    assert str(caught.value) == "arm 'mine' calls itself 'cublas_loop'; the two must be the same"


def test_an_object_that_is_no_arm_is_refused(entry_point):
    entry_point("mine", "my_arms_no_arm", "ARM = 3")

    with pytest.raises(PluginError) as caught:
        arms.load("mine")

    assert str(caught.value) == "arm 'mine' must be an object with info, why_not and prepare, got int"


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(UnknownName) as caught:
        arms.load("cublas")

    assert str(caught.value) == f"arm 'cublas' is not known; known: {', '.join(sorted(KEYS))}"


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("cublas_loop@fast", PluginError, "takes no parameter"),
        ("cake@128x256_c2x1_s3_b8", UnknownName, "cake_det"),
    ],
)
def test_a_parameter_for_an_arm_that_takes_none_or_is_not_there(name, error, says):
    with pytest.raises(error, match=says):
        arms.load(name)
