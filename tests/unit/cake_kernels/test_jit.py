"""CUDA C++ -> cubin: what the key is made of, what errors say, and the real compiler on real sources."""

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import cake_kernels
from cake_kernels import jit
from cake_kernels.cubin_cache import Compiled, CubinCache
from cake_kernels.errors import CompileError, ToolchainMissingError
from cake_kernels.jit import Source
from cake_kernels.nvrtc import Nvrtc

KERNEL = 'extern "C" __global__ void k(int* p) { *p = VALUE; }'


class FakeCompiler:
    """Makes a text of what it was given, and counts."""

    def __init__(self, identity: str = "fake 1.0") -> None:
        self.identity = identity
        self.options: list[Sequence[str]] = []

    def compile(self, source: Source, options: Sequence[str]) -> Compiled:
        self.options.append(options)
        return Compiled(code=f"{source.text} {' '.join(options)}".encode(), log="")


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


BASE: Mapping[str, Any] = {
    "source": Source(origin="here/k.cu", text="text", headers={"a.cuh": "a"}),
    "arch": "sm_90a",
    "defines": {"TILE_M": 128},
    "options": ("--maxrregcount=64",),
}


def compile_into(folder: Path, compiler: FakeCompiler, **changed: object) -> jit.Cubin:
    return jit.compile(**{**BASE, **changed}, compiler=compiler, cache=CubinCache(folder))


def test_the_same_call_is_compiled_once(tmp_path: Path) -> None:
    compiler = FakeCompiler()

    first, second = compile_into(tmp_path, compiler), compile_into(tmp_path, compiler)

    assert first == second
    assert (len(compiler.options), len(files(tmp_path))) == (1, 1)


@pytest.mark.parametrize(
    "changed",
    [
        {"source": replace(BASE["source"], text="text ")},
        {"source": replace(BASE["source"], origin="here/other.cu")},
        {"source": replace(BASE["source"], headers={"a.cuh": "A"})},
        {"source": replace(BASE["source"], headers={"b.cuh": "a"})},
        {"source": replace(BASE["source"], headers={})},
        {"arch": "sm_100a"},
        {"defines": {"TILE_M": 64}},
        {"defines": {"TILE_N": 128}},
        {"defines": None},
        {"options": ("--maxrregcount=96",)},
        {"options": ()},
    ],
    ids=str,
)
def test_each_ingredient_is_in_the_key(tmp_path: Path, changed: dict[str, object]) -> None:
    compile_into(tmp_path, FakeCompiler())
    compiler = FakeCompiler()

    compile_into(tmp_path, compiler, **changed)

    assert (len(compiler.options), len(files(tmp_path))) == (1, 2)


def test_the_compiler_is_in_the_key(tmp_path: Path) -> None:
    compile_into(tmp_path, FakeCompiler("fake 1.0"))
    newer = FakeCompiler("fake 1.1")

    compile_into(tmp_path, newer)

    assert len(newer.options) == 1


def test_the_package_is_in_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_into(tmp_path, FakeCompiler())
    monkeypatch.setattr(jit, "PACKAGE", "previous_cake_kernels")
    compiler = FakeCompiler()

    compile_into(tmp_path, compiler)

    assert len(compiler.options) == 1


@pytest.fixture
def other_revision() -> ModuleType:
    """This package imported a second time, under another name."""
    name = "previous_cake_kernels"
    folder = Path(cake_kernels.__file__).parent
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield importlib.import_module(f"{name}.jit")
    for loaded in [m for m in sys.modules if m.split(".")[0] == name]:
        del sys.modules[loaded]


def test_a_revision_under_another_name_has_its_own_folder(
    other_revision: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAKE_KERNELS_CACHE", str(tmp_path))

    assert other_revision._cache().folder == tmp_path / "previous_cake_kernels"
    assert jit._cache.__wrapped__().folder == tmp_path / "cake_kernels"


def test_the_order_of_macros_does_not_matter(tmp_path: Path) -> None:
    compiler = FakeCompiler()

    compile_into(tmp_path, compiler, defines={"A": 1, "B": 2})
    compile_into(tmp_path, compiler, defines={"B": 2, "A": 1})

    assert len(compiler.options) == 1


def test_macros_reach_the_compiler_as_numbers_and_words(tmp_path: Path) -> None:
    compiler = FakeCompiler()

    compile_into(tmp_path, compiler, defines={"TILE_M": 128, "SPLIT": True, "TYPE": "float"})

    assert compiler.options == [
        (
            "--gpu-architecture=sm_90a",
            "--std=c++17",
            "--generate-line-info",
            "-DSPLIT=1",
            "-DTILE_M=128",
            "-DTYPE=float",
            "--maxrregcount=64",
        )
    ]


def test_an_edited_header_is_compiled_again(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text('#include "a.cuh"\n')
    compiler = FakeCompiler()
    for text in ("// one", "// two", "// one"):
        (tmp_path / "a.cuh").write_text(text)
        compile_into(tmp_path / "cache", compiler, source=tmp_path / "k.cu", include=())

    assert len(compiler.options) == 2


def test_a_cubin_says_why_it_is_not_on_disk(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    cubin = compile_into(tmp_path / "file", FakeCompiler())

    assert cubin.not_on_disk == f"{tmp_path / 'file'} cannot be written: File exists"
    assert (
        cubin.code == b"text --gpu-architecture=sm_90a --std=c++17 --generate-line-info -DTILE_M=128 --maxrregcount=64"
    )


def test_nvrtc_says_its_exact_build() -> None:
    identity = Nvrtc().identity

    assert "Cuda compilation tools, release" in identity
    assert "Compiler Build ID" in identity


def test_nvrtc_makes_an_elf_image_with_headers_from_memory() -> None:
    source = Source(
        origin="k.cu",
        text=f'#include "ptx/value.cuh"\n{KERNEL}',
        headers={"ptx/value.cuh": '#include "ptx/deep.cuh"\n', "ptx/deep.cuh": "#define VALUE 3\n"},
    )

    cubin = jit.compile(source, arch="sm_90a", cache=CubinCache(None))

    assert cubin.code.startswith(b"\x7fELF")
    assert b".text.k\0" in cubin.code


def test_the_code_does_not_depend_on_where_the_source_lies(tmp_path: Path) -> None:
    for folder in ("one", "another"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "k.cu").write_text(KERNEL)

    one, another = (
        jit.compile(tmp_path / folder / "k.cu", arch="sm_90a", defines={"VALUE": 1}, cache=CubinCache(None))
        for folder in ("one", "another")
    )

    assert one.code == another.code


def test_a_compile_error_shows_path_and_log(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text(KERNEL)

    with pytest.raises(CompileError) as caught:
        jit.compile(path, arch="sm_90a", cache=CubinCache(tmp_path / "cache"))

    assert str(caught.value).startswith(f"{path} does not compile:\nk.cu(1): error: identifier")
    assert 'identifier "VALUE" is undefined' in caught.value.log
    assert "NVRTC_ERROR_COMPILATION, options: --gpu-architecture=sm_90a" in caught.value.log
    assert not (tmp_path / "cache").exists()


def test_an_unknown_architecture_is_a_compile_error(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="invalid value for --gpu-architecture"):
        jit.compile(Source(origin="k.cu", text=""), arch="sm_1", cache=CubinCache(None))


def test_a_header_that_is_nowhere_is_a_compile_error() -> None:
    with pytest.raises(CompileError, match="gone.cuh"):
        jit.compile(Source(origin="k.cu", text='#include "gone.cuh"\n'), arch="sm_90a", cache=CubinCache(None))


def test_bindings_that_are_not_installed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)

    with pytest.raises(ToolchainMissingError, match="cuda-bindings is not installed") as caught:
        Nvrtc()

    assert "pip install 'cake-kernels[gpu]'" in str(caught.value)


def test_a_library_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("Failure finding libnvrtc.so.13")

    bindings = ModuleType("cuda.bindings.nvrtc")
    bindings.nvrtcVersion = fail  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", bindings)

    with pytest.raises(ToolchainMissingError, match=r"NVRTC is not installed \(Failure finding libnvrtc.so.13\)"):
        Nvrtc()
