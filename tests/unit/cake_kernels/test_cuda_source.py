"""Which headers a source reaches, and what they are called."""

from pathlib import Path

import pytest

from cake_kernels.cuda_source import Source, read_source
from cake_kernels.errors import CompileError


def write(folder: Path, **texts: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.cuh").write_text(text)


def test_headers_of_headers_are_reached(tmp_path: Path) -> None:
    (tmp_path / "main.cu").write_text('#include "ptx/a.cuh"\n  #  include <ptx/b.cuh>\nint x;\n')
    write(tmp_path / "include" / "ptx", a='#include "c.cuh"\n', b='#include "ptx/a.cuh"\n', c="// end\n")

    source = read_source(tmp_path / "main.cu", [tmp_path / "include"])

    assert source.headers == {
        "ptx/a.cuh": '#include "c.cuh"\n',
        "c.cuh": "// end\n",
        "ptx/b.cuh": '#include "ptx/a.cuh"\n',
    }
    assert (source.name, source.origin) == ("main.cu", str(tmp_path / "main.cu"))


def test_the_including_files_folder_comes_first(tmp_path: Path) -> None:
    (tmp_path / "main.cu").write_text('#include "a.cuh"\n')
    write(tmp_path, a="// beside\n")
    write(tmp_path / "include", a="// searched\n")

    assert read_source(tmp_path / "main.cu", [tmp_path / "include"]).headers == {"a.cuh": "// beside\n"}


def test_headers_that_include_each_other_end(tmp_path: Path) -> None:
    (tmp_path / "main.cu").write_text('#include "a.cuh"\n')
    write(tmp_path, a='#include "b.cuh"\n', b='#include "a.cuh"\n')

    assert set(read_source(tmp_path / "main.cu").headers) == {"a.cuh", "b.cuh"}


def test_a_header_that_is_nowhere_is_left_to_the_compiler(tmp_path: Path) -> None:
    (tmp_path / "main.cu").write_text("#ifndef __CUDACC_RTC__\n#include <cstdint>\n#endif\n")

    assert read_source(tmp_path / "main.cu").headers == {}


def test_one_name_for_two_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "main.cu").write_text('#include "a.cuh"\n#include "deep/b.cuh"\n')
    write(tmp_path, a="")
    write(tmp_path / "deep", a="", b='#include "a.cuh"\n')

    with pytest.raises(CompileError, match="one name must mean one file") as caught:
        read_source(tmp_path / "main.cu")

    assert str(tmp_path / "a.cuh") in str(caught.value)
    assert caught.value.origin == str(tmp_path / "deep" / "b.cuh")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CompileError) as caught:
        read_source(tmp_path / "gone.cu")

    assert (
        str(caught.value) == f"{tmp_path / 'gone.cu'} does not compile:\nit cannot be read: No such file or directory"
    )


def test_a_text_has_its_origin_for_a_name() -> None:
    assert Source(origin="made/here.cu", text="").name == "here.cu"
