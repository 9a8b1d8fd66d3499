"""Compiling and checking every kernel, from the command line on, with the real compiler and nvdisasm."""

import importlib.metadata
import io
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cake_kernels import build, jit, ptxas, registry
from cake_kernels.__main__ import main
from cake_kernels.cubin_cache import CubinCache
from cake_kernels.errors import ArgumentError, CakeError, CompileError, NoProgramError, ProgramFileError
from cake_kernels.nvdisasm import Nvdisasm
from cake_kernels.registry import Build, Program

# A GEMM's skeleton: one warpgroup loads, another multiplies; what comes out is of no use.
TINY = r"""
using u32 = unsigned int;
using u64 = unsigned long long;
struct alignas(64) Map { char bytes[128]; };

extern "C" __global__ void __launch_bounds__(256, 1)
tiny(const __grid_constant__ Map map, float* out, int blocks) {
  extern __shared__ __align__(1024) char smem[];
  __shared__ u64 full;
  const u32 bar = static_cast<u32>(__cvta_generic_to_shared(&full));
  const u32 tile = static_cast<u32>(__cvta_generic_to_shared(smem));
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x > 0) return;
    for (int k = 0; k < blocks; ++k)
#if MULTICAST
      asm volatile(
          "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
          " [%0], [%1, {%2, %2}], [%3], %4;" ::"r"(tile), "l"(&map), "r"(k), "r"(bar), "h"((short)3) : "memory");
#else
      asm volatile(
          "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
          " [%0], [%1, {%2, %2}], [%3];" ::"r"(tile), "l"(&map), "r"(k), "r"(bar) : "memory");
#endif
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  float d[4] = {};
  const u64 desc = tile >> 4 | 64ull << 32 | 1ull << 62;
  for (int k = 0; k < blocks; ++k) {
#if LOCAL_MEMORY
    volatile int kept = k;
    if (kept != k) break;
#endif
    asm volatile("{.reg .pred done; wait: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @!done bra wait;}"
                 ::"r"(bar), "r"(k & 1));
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %4, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(desc));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i];
}
"""

Kernels = Callable[..., tuple[Build, ...]]


@pytest.fixture(autouse=True)
def cache_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what these tests compile out of the user's cache."""
    cache = CubinCache(None)
    monkeypatch.setattr(jit, "_cache", lambda: cache)


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    """Give the registry one program, with a kernel for each set of macros."""
    source = tmp_path / "tiny.cu"
    source.write_text(TINY)

    def register(**macros: dict[str, int]) -> tuple[Build, ...]:
        cluster = {"CLUSTER_M": 2, "CLUSTER_N": 1, "MULTICAST": 1}
        builds = tuple(
            Build(name=name, source=source, defines=cluster | chosen, symbol="tiny", smem_bytes=4096)
            for name, chosen in macros.items()
        )
        program = Program(
            stem="tiny",
            op="fwd",
            variant="det",
            arch="sm_90a",
            out_dtype="bf16",
            refuse=lambda problem: None,
            route=lambda *args, **kwargs: None,
            builds=lambda: builds,
        )
        monkeypatch.setattr(registry, "programs", lambda: (program,))
        return builds

    return register


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_each_kernel_becomes_a_file_and_a_line(
    kernels: Kernels, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels(tiny_pair={}, tiny_alone={"CLUSTER_M": 1, "MULTICAST": 0})

    code = main(["build", "--arch", "sm_90a", "--out", str(tmp_path / "new" / "out")])

    files = {path.name: path.read_bytes() for path in (tmp_path / "new" / "out").iterdir()}
    pair, alone = (files.pop(f"{name}.cubin") for name in ("tiny_pair", "tiny_alone"))
    out, err = capsys.readouterr()
    assert (code, files, err) == (0, {}, "compiling 2 kernels for sm_90a\n")
    assert (pair[:4], alone[:4]) == (b"\x7fELF", b"\x7fELF")
    assert words(out) == [
        ["kernel", "bytes", "registers", "spill", "stores", "spill", "loads", "static", "smem", "dynamic", "smem"],
        ["tiny_pair", str(len(pair)), "232", "0", "0", "1024", "4096"],
        ["tiny_alone", str(len(alone)), "232", "0", "0", "1024", "4096"],
    ]


def test_sound_kernels_pass_the_check_with_their_loops_density(
    kernels: Kernels, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels(tiny={})

    code = main(["build", "--arch", "sm_90a", "--out", str(tmp_path), "--check"])

    head, line = words(capsys.readouterr().out)
    densities = [float(word.rstrip(",")) for word in line[7:]]
    assert code == 0
    assert head[-3:] == ["SASS", "per", "HGMMA"]
    assert densities
    assert all(density > 1 for density in densities)


def test_a_broken_rule_is_named_with_its_kernel_and_value(
    kernels: Kernels, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels(sound={}, unicast={"MULTICAST": 0}, local={"LOCAL_MEMORY": 1})

    code = main(["build", "--arch", "sm_90a", "--out", str(tmp_path), "--check"])

    out, err = capsys.readouterr()
    _, unicast, local = err.splitlines()
    assert code == 1
    assert [line[0] for line in words(out)] == ["kernel", "sound", "unicast", "local"]
    assert unicast == "unicast: a cluster of 2 CTAs must load by UTMALDG with MULTICAST, found UTMALDG.2D"
    assert local.startswith("local: the consumers' loop must neither touch local memory nor call, .L_x_")
    assert local.endswith(" has STL")


@pytest.mark.parametrize(("macros", "code"), [({}, 0), ({"MULTICAST": 0}, 1)])
def test_a_reader_that_has_left_hides_no_broken_rule(
    kernels: Kernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, macros: dict[str, int], code: int
) -> None:
    kernels(tiny=macros)
    with subprocess.Popen(["true"], stdin=subprocess.PIPE) as gone:
        gone.wait()
        assert gone.stdin is not None
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(gone.stdin))

        assert main(["build", "--arch", "sm_90a", "--out", str(tmp_path), "--check"]) == code

        sys.stdout.detach()


def test_a_table_that_cannot_be_written_gives_two(
    kernels: Kernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels(tiny={})
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)

        code = main(["build", "--arch", "sm_90a", "--out", str(tmp_path)])

    said = capsys.readouterr().err.splitlines()
    assert (code, said[1:]) == (2, ["error: the output cannot be written: No space left on device"])


def test_asking_for_figures_does_not_change_the_code(kernels: Kernels, tmp_path: Path) -> None:
    (tiny,) = kernels(tiny={})
    flows = []
    for options in ((), ptxas.OPTIONS):
        path = tmp_path / f"{len(options)}.cubin"
        path.write_bytes(jit.compile(tiny.source, arch="sm_90a", defines=tiny.defines, options=options).code)
        flows.append(Nvdisasm().flow_graph(path))

    plain, asked = flows

    assert "HGMMA" in plain
    assert plain == asked


def test_a_compile_error_has_kernel_path_and_log(
    kernels: Kernels, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tiny,) = kernels(tiny={})
    tiny.source.write_text('extern "C" __global__ void tiny(int* p) { *p = VALUE; }')

    code = main(["build", "--arch", "sm_90a", "--out", str(tmp_path)])

    out, err = capsys.readouterr()
    assert (code, out) == (1, "")
    assert f"tiny: {tiny.source} does not compile:\n" in err
    assert 'identifier "VALUE" is undefined' in err
    assert "-DCLUSTER_M=2" in err


def test_a_source_without_its_kernel_is_a_compile_error(kernels: Kernels, tmp_path: Path) -> None:
    (tiny,) = kernels(tiny={})

    with pytest.raises(CompileError, match="it has no kernel 'huge'; ptxas saw tiny"):
        build.compile_all([replace(tiny, symbol="huge")], arch="sm_90a", out=tmp_path)


def test_an_architecture_without_programs_is_named_with_those_that_have_some(
    kernels: Kernels, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels(tiny={})

    code = main(["build", "--arch", "sm_1", "--out", str(tmp_path / "out")])

    assert (code, capsys.readouterr().err) == (
        2,
        "error: no program is compiled for 'sm_1'; this version has programs for sm_90a\n",
    )
    assert not (tmp_path / "out").exists()


def test_a_version_without_programs_says_so() -> None:
    with pytest.raises(NoProgramError) as caught:
        build.builds_for("sm_90a", ())

    assert str(caught.value) == "no program is compiled for 'sm_90a'; this version of cake_kernels has no programs"


def test_two_kernels_of_one_name_are_refused(kernels: Kernels) -> None:
    (tiny,) = kernels(tiny={})
    (program,) = registry.programs()
    other = replace(program, builds=lambda: (replace(tiny, smem_bytes=tiny.smem_bytes + 16),))

    with pytest.raises(ProgramFileError, match="two that differ are called tiny"):
        build.builds_for("sm_90a", (program, other))


def test_a_kernel_that_two_programs_launch_is_listed_once(kernels: Kernels) -> None:
    (tiny,) = kernels(tiny={})
    (program,) = registry.programs()

    assert build.builds_for("sm_90a", (program, program)) == (tiny,)


def test_a_folder_that_cannot_be_written_is_named(
    kernels: Kernels, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels(tiny={})
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "out"

    code = main(["build", "--arch", "sm_90a", "--out", str(out)])

    assert code == 2
    assert capsys.readouterr().err.splitlines()[1:] == [
        f"error: out must be a folder that can be written, {out} is not: Not a directory; name another"
    ]


def test_a_file_that_cannot_be_written_is_an_error_too(kernels: Kernels, tmp_path: Path) -> None:
    (tiny,) = kernels(tiny={})
    (tmp_path / "tiny.cubin").mkdir()

    with pytest.raises(ArgumentError, match="is not: Is a directory; name another"):
        build.compile_all([tiny], arch="sm_90a", out=tmp_path)


def test_the_check_knows_one_architecture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["build", "--arch", "sm_100a", "--out", str(tmp_path), "--check"])

    assert (code, capsys.readouterr().err) == (
        2,
        "error: --check knows the rules of sm_90a alone, got --arch sm_100a; leave it out\n",
    )


def test_a_missing_compiler_is_named_with_the_extra(
    kernels: Kernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels(tiny={})
    monkeypatch.setattr(jit, "_nvrtc", jit._nvrtc.__wrapped__)
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)

    code = main(["build", "--arch", "sm_90a", "--out", str(tmp_path)])

    assert code == 2
    assert "pip install 'cake-kernels[gpu]'" in capsys.readouterr().err


def test_a_missing_nvdisasm_is_named_before_anything_is_compiled(
    kernels: Kernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    kernels(tiny={})
    monkeypatch.setattr("cake_kernels.nvdisasm.files", absent)

    code = main(["build", "--arch", "sm_90a", "--out", str(tmp_path / "out"), "--check"])

    assert (code, capsys.readouterr().err) == (
        2,
        "error: nvidia-cuda-nvdisasm is not installed; pip install nvidia-cuda-nvdisasm, or the extra 'dev'\n",
    )
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_no_cubin_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "text.cubin").write_text("text")

    with pytest.raises(CakeError, match=f"nvdisasm refuses {tmp_path / 'text.cubin'}: nvdisasm fatal"):
        Nvdisasm().flow_graph(tmp_path / "text.cubin")


def test_an_interrupt_drops_the_kernels_that_wait(
    kernels: Kernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels(**{f"tiny{number}": {} for number in range(200)})
    begun: list[str] = []

    def compile_slowly(build: Build, **_: object) -> None:
        begun.append(build.name)
        if build.name == "tiny0":
            raise KeyboardInterrupt
        time.sleep(0.05)

    monkeypatch.setattr(build, "_compile", compile_slowly)

    code = main(["build", "--arch", "sm_90a", "--out", str(tmp_path)])

    assert (code, capsys.readouterr().err.splitlines()[-1]) == (130, "interrupted")
    assert len(begun) < 200


def test_an_internal_error_never_leaves_pythons_own_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "programs", lambda: 1 / 0)

    code = main(["list"])

    assert code == 2
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_the_programs_are_listed(kernels: Kernels, capsys: pytest.CaptureFixture[str]) -> None:
    kernels(tiny={})

    code = main(["list"])

    assert (code, capsys.readouterr().out) == (
        0,
        "op   variant  arch    out   program\nfwd  det      sm_90a  bf16  tiny\n",
    )


def test_without_a_command_the_help_is_printed() -> None:
    done = subprocess.run([sys.executable, "-m", "cake_kernels"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: python -m cake_kernels ")
