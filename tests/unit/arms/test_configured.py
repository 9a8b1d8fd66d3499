"""Arms of ours whose configuration, or its tail, is given: `cake_det@NAME` and `cake_nondet@NAME`."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from cake_kernels.grouped_gemm.sm90.config import Config, choose
from harness import arms
from harness.arms import _configured
from harness.errors import PluginError
from harness.operands import make_operands

SMS = 8
# Two shapes of dW: the first gets 256 x 192 on so many SMs, and on 132 the 128 x 256 that the second gets anywhere.
SHAPES = ({"sizes": (100, 60), "N": 512, "K": 384}, {"sizes": (64,), "N": 16, "K": 24})


@pytest.fixture
def prepared(monkeypatch, new_case):
    """Return a function that gives the Prepared of an arm and the configuration that it has prepared; no GPU."""
    configs = []

    def prepare(op, a, b, offs, out, *, accumulate, config):
        configs.append(config)

    monkeypatch.setattr(_configured.sm90, "prepare", prepare)
    monkeypatch.setattr(_configured, "facts", lambda _index: SimpleNamespace(sms=SMS))

    def make(name, **case):
        made = new_case(**case)
        ready = arms.load(name).prepare(made, make_operands(made, seed=0, device=torch.device("cpu")))
        return ready, configs.pop()

    return make


@pytest.mark.parametrize(
    "name",
    [
        "cake_det@256x192_c1x2_s3_b4_swap_l16",
        "cake_det@plain",
        "cake_det@whole",
        "cake_det@slots",
        "cake_nondet@atomics",
        "cake_nondet@128x256_c2x1_s3_b8_atomics",
    ],
)
def test_an_arm_of_a_configuration_or_a_tail_is_ours_and_belongs_to_no_default(name):
    arm = arms.load(name)

    assert (arm.info.name, arm.info.is_cake) == (name, True)
    assert name not in arms.names()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("cake_det@300x300", "name of a configuration must look like 256x192_c1x2_s3_b8_swap_l16_slots, got '300x300'"),
        (
            "cake_det@128x256_c2x1_s3_b8_atomics",
            "tail of cake_det@128x256_c2x1_s3_b8_atomics must be plain or whole or slots, got 'atomics'; cake_nondet"
            " takes atomics",
        ),
        (
            "cake_det@atomics",
            "tail of cake_det@atomics must be plain or whole or slots, got 'atomics'; cake_nondet takes atomics",
        ),
        (
            "cake_nondet@plain",
            "tail of cake_nondet@plain must be atomics, got 'plain'; cake_det takes plain or whole or slots",
        ),
        (
            "cake_nondet@128x256_c2x1_s3_b8",
            "tail of cake_nondet@128x256_c2x1_s3_b8 must be atomics, got 'plain'; cake_det takes plain or whole or"
            " slots",
        ),
        (
            "cake_det@slot",
            "tail of cake_det@slot must be plain or whole or slots, got 'slot'; cake_nondet takes atomics",
        ),
    ],
)
def test_a_name_that_is_no_configuration_or_tail_of_the_variant_is_refused(name, says):
    with pytest.raises(PluginError) as caught:
        arms.load(name)

    assert str(caught.value) == f"arm {name} cannot be: {says}"


@pytest.mark.parametrize("name", ["cake_det@plain", "cake_det@whole", "cake_det@slots", "cake_nondet@atomics"])
def test_a_tail_is_put_into_the_configuration_that_each_row_gets_and_the_note_names_it(name, prepared):
    chosen = [choose("wgrad", M=sum(s["sizes"]), N=s["N"], K=s["K"], E=len(s["sizes"]), sms=SMS) for s in SHAPES]
    expected = [replace(config, tail=name.split("@")[1]) for config in chosen]

    made = [prepared(name, op="dW", **shape) for shape in SHAPES]

    assert [config.tile_m for config in expected] == [256, 128]
    assert [config for _, config in made] == expected
    assert [ready.note for ready, _ in made] == [config.name for config in expected]


def test_a_given_configuration_is_prepared_as_it_is_without_a_note(prepared):
    name = "256x192_c1x1_s3_b8_l16_slots"

    made = [prepared(f"cake_det@{name}", op="dW", **shape) for shape in SHAPES]

    assert [(ready.note, config) for ready, config in made] == [("", Config.named(name))] * 2


def test_a_configuration_says_which_operands_it_cannot_load(new_case, new_machine):
    arm = arms.load("cake_det@256x192_c2x1_s3_b8_swap_l16")

    assert arm.why_not(new_case("fwd"), new_machine("cuda")) is None
    assert "rows that a CTA loads in wgrad must be a multiple of 64, got 96" in str(
        arm.why_not(new_case("dW"), new_machine("cuda"))
    )
    assert arm.why_not(new_case("ckpt"), new_machine("cuda")) == "computes products, no training step"


@pytest.mark.parametrize("op", ["fwd", "dX"])
def test_fwd_and_dx_take_a_tail_that_splits_nothing_and_say_why_no_other(op, new_case, new_machine):
    names = ("cake_det@plain", "cake_det@whole", "cake_det@slots", "cake_nondet@atomics")

    answers = [arms.load(name).why_not(new_case(op), new_machine("cuda")) for name in names]

    assert answers == [
        None,
        None,
        *(
            f"{tail} splits tiles, whose bits then depend on the other groups, which those of {op} must not; take"
            " cake_det@plain or cake_det@whole"
            for tail in ("slots", "atomics")
        ),
    ]


@pytest.mark.parametrize("out_dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("name", ["cake_det@plain", "cake_det@whole", "cake_det@slots", "cake_nondet@atomics"])
def test_dw_takes_every_tail(name, out_dtype, new_case, new_machine):
    assert arms.load(name).why_not(new_case("dW", out_dtype=out_dtype), new_machine("cuda")) is None


def test_the_program_that_is_asked_for_is_of_the_variant(new_case, new_machine):
    answer = arms.load("cake_nondet@atomics").why_not(new_case("dW"), new_machine("cpu"))

    assert str(answer).startswith("no program for wgrad (nondet, bf16 out) on x86_64")


@pytest.mark.parametrize("name", ["cake_det@plain", "cake_det@256x192_c1x1_s3_b8_l16_slots"])
def test_an_arm_without_rows_says_so(name, new_case, new_machine):
    answer = arms.load(name).why_not(new_case("dW", (0, 0)), new_machine("cuda"))

    assert answer == "needs at least one row, got M = 0"
