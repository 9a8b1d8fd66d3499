"""Every arm against an FP64 reference, its outputs poisoned before the call. A wrong arm has no time."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch

from harness.arms import Operands, Output, Prepared, new_output
from harness.errors import FOREIGN, MeasurementError, first_line
from harness.model.case import Case
from harness.model.run import Check
from harness.operands import REFERENCE_ROWS, fill, fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a check says of one arm: why it failed (empty when it is right), and by how much it is off."""

    failure: str
    check: Check | None


def check_arms(case: Case, operands: Operands, arms: Mapping[str, Prepared], *, seed: int) -> dict[str, Verdict]:
    """Call each arm once with poisoned outputs and compare every element with FP64; of a step y, dX and dW.

    The reference is computed once, in parts, for all arms. An exception of an arm is its verdict, not ours; so is a
    write to the inputs, which are then made again from ``seed`` for the other arms.
    """
    outputs: dict[str, tuple[torch.Tensor, ...]] = {}
    verdicts: dict[str, Verdict] = {}
    given = fingerprint(operands)
    owners = _Owners(operands)
    for name, arm in arms.items():
        try:
            returned = _poisoned_call(case, operands, arm)
            owners.claim(name, returned)
        except FOREIGN as error:
            verdicts[name] = Verdict(failure=f"raised {type(error).__name__}: {first_line(error)}", check=None)
            continue
        if fingerprint(operands) == given:
            outputs[name] = returned
            continue
        verdicts[name] = Verdict(failure="wrote to its inputs, which all arms share", check=None)
        fill(operands, seed=seed)
    by_product = [
        _compared(product, operands, {name: returned[place] for name, returned in outputs.items()})
        for place, product in enumerate(case.products)
    ]
    for name in outputs:
        verdicts[name] = together({p.op: found[name] for p, found in zip(case.products, by_product, strict=True)})
    for output in (output for returned in outputs.values() for output in returned):
        # An arm that hands out an old result instead of computing hands out this the next time.
        output.detach().fill_(math.nan)
    return verdicts


def _compared(product: Case, operands: Operands, outputs: Mapping[str, torch.Tensor]) -> dict[str, Verdict]:
    """Return the verdict on each arm's result of one product."""
    tallies = {name: _Tally() for name in outputs}
    for part in _reference_parts(product, operands):
        for name, output in outputs.items():
            tallies[name].add(part.rows_of(output), part)
    return {name: tally.verdict(rel_l2_limit(product)) for name, tally in tallies.items()}


def together(by_op: Mapping[str, Verdict]) -> Verdict:
    """Return one verdict of a call's results: of several the first failure with its product, else the closest check."""
    if len(by_op) == 1:
        return next(iter(by_op.values()))
    for op, verdict in by_op.items():
        if verdict.failure:
            return Verdict(failure=f"{op}: {verdict.failure}", check=verdict.check)
    return max(by_op.values(), key=_closeness)


def _closeness(verdict: Verdict) -> float:
    """Return how much of its limits a result takes, 1 being all."""
    check = verdict.check
    return max(check.rel_l2 / check.rel_l2_limit, check.worst) if check else 0.0


def accumulation_limit(n: int) -> float:
    """Return the error of an FP32 sum of ``n`` products of standard normals, relative to the sum's own deviation √n.

    Products of two BF16 numbers are exact in FP32. A sum of n of them has partial sums of size √j; an adder that
    truncates (tensor cores do) loses up to one unit in the last place, 2^-23, of each. With 16 products a step (one
    ``wgmma`` instruction's k, and about what blocked CPU code adds at a time) the losses add up to at most
    Σ 2^-23 √j over n/16 steps = 2^-23 (2/3) n^1.5 / 16, that is 2^-23 (2/3) n / 16 relative to √n; rounded up to
    2^-23 (1 + n / 16). Measured errors lie far below; the bound's point is that a lost k-step lies far above.
    """
    return 2**-23 * (1 + n / 16)


def rel_l2_limit(case: Case) -> float:
    """Return the limit of ‖out - ref‖ / ‖ref‖ over all elements of a product.

    One rounding to BF16 is off by at most u = 2^-8 of the element, evenly spread: u / √3 in the mean square over many
    elements, at the mantissa where it hurts most. Over n elements the mean square itself varies by about 1 / √n; with
    four times that a right result of few elements passes too, and none can exceed u. To that comes the accumulation
    over the longest sum.
    """
    s = case.shape
    longest = {"fwd": s.K, "dX": s.N, "dW": max(s.group_sizes, default=0)}[case.op]
    elements = {"fwd": s.M * s.N, "dX": s.M * s.K, "dW": s.E * s.N * s.K}[case.op]
    unit = 2**-8 if case.out_dtype == "bf16" else 2**-24
    rounding = min(unit, unit / math.sqrt(3) * (1 + 4 / math.sqrt(max(1, elements))))
    return rounding + accumulation_limit(longest)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A part of the result: FP64 values, where they stand in the output, how many products each sums."""

    index: slice | int
    reference: torch.Tensor
    n: int
    rounding: float

    def rows_of(self, output: torch.Tensor) -> torch.Tensor:
        return output[self.index]

    def limits(self) -> torch.Tensor:
        """Return each element's own limit: one rounding of it, and 8 deviations of the accumulation's error."""
        return self.reference.abs() * self.rounding + 8 * accumulation_limit(self.n) * math.sqrt(self.n)


def _reference_parts(case: Case, operands: Operands) -> Iterator[_Part]:
    rounding = 2**-8 if case.out_dtype == "bf16" else 2**-24
    start = 0
    for expert, size in enumerate(operands.group_sizes):
        rows = slice(start, start + size)
        start += size
        if case.op == "dW":
            yield _Part(index=expert, reference=_dw(operands, rows, case), n=size, rounding=rounding)
            continue
        for part in _split(rows):
            yield _Part(
                index=part,
                reference=_rows_product(case, operands, expert, part),
                n=case.shape.K if case.op == "fwd" else case.shape.N,
                rounding=rounding,
            )


def _rows_product(case: Case, operands: Operands, expert: int, rows: slice) -> torch.Tensor:
    source = operands.x if case.op == "fwd" else operands.g
    assert source is not None
    assert operands.w is not None
    weight = operands.w[expert].double()
    return source[rows].double() @ (weight.t() if case.op == "fwd" else weight)


def _dw(operands: Operands, rows: slice, case: Case) -> torch.Tensor:
    assert operands.g is not None
    assert operands.x is not None
    total = torch.zeros(case.shape.N, case.shape.K, dtype=torch.float64, device=operands.offs.device)
    for part in _split(rows):
        total.addmm_(operands.g[part].double().t(), operands.x[part].double())
    return total


def _split(rows: slice) -> Iterator[slice]:
    for start in range(rows.start, rows.stop, REFERENCE_ROWS):
        yield slice(start, min(start + REFERENCE_ROWS, rows.stop))


def _poisoned_call(case: Case, operands: Operands, arm: Prepared) -> tuple[torch.Tensor, ...]:
    device = operands.offs.device
    # An arm that allocates most likely gets these blocks back from the allocator, with the NaN in them; and where it
    # asks torch for memory, torch fills it with NaN.
    forms = _poisoned((arm.out,) if arm.out is not None else (new_output(p, device) for p in case.products))
    with nullcontext() if arm.out is not None else _filled_memory():
        returned = _as_tuple(arm.launch())
    if arm.out is not None and returned[0].data_ptr() != arm.out.data_ptr():
        raise MeasurementError("the call returned another tensor than the output it was given")
    if len(returned) != len(case.products):
        wanted = ", ".join(product.op for product in case.products)
        raise MeasurementError(f"the call must return {len(case.products)} tensors ({wanted}), got {len(returned)}")
    for product, (size, dtype), output in zip(case.products, forms, returned, strict=True):
        what = f"output {product.op}" if case.is_step else "output"
        if output.shape != size or output.dtype != dtype:
            raise MeasurementError(f"{what} must be {dtype} {list(size)}, got {output.dtype} {list(output.shape)}")
        if output.device != device or output.layout is not torch.strided:
            where = f"on {device}, got {output.layout} on {output.device}"
            raise MeasurementError(f"{what} must be a dense tensor {where}")
    if device.type == "cuda":
        torch.cuda.synchronize()
    return returned


def _poisoned(tensors: Iterable[torch.Tensor]) -> list[tuple[torch.Size, torch.dtype]]:
    """Fill the tensors, all of them alive at once, with NaN; return their forms alone, so that new ones are freed."""
    return [(tensor.fill_(math.nan).shape, tensor.dtype) for tensor in list(tensors)]


def _as_tuple(output: Output) -> tuple[torch.Tensor, ...]:
    return output if isinstance(output, tuple) else (output,)


@contextmanager
def _filled_memory() -> Iterator[None]:
    """Have torch fill the memory it allocates, as its deterministic mode does; what that would refuse is let pass."""
    # Not by torch.use_deterministic_algorithms, which imports torch's compiler: seconds for each process that measures.
    before = torch.get_deterministic_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        torch.set_deterministic_debug_mode("warn")
        try:
            yield
        finally:
            torch.set_deterministic_debug_mode(before)


class _Owners:
    """Whose memory is whose: outputs are separate from each other and from the inputs."""

    def __init__(self, operands: Operands) -> None:
        inputs = (operands.x, operands.w, operands.g, operands.offs)
        self._of = {t.untyped_storage().data_ptr(): "the inputs" for t in inputs if t is not None and t.numel()}

    def claim(self, name: str, outputs: Iterable[torch.Tensor]) -> None:
        """Give ``outputs`` to ``name``, or raise if one has an owner."""
        for output in outputs:
            if output.numel() and (owner := self._of.setdefault(output.untyped_storage().data_ptr(), name)) != name:
                raise MeasurementError(f"its output shares memory with {owner}")


class _Tally:
    """Adds up the errors of one arm over the parts of the result; values stay on the device until the verdict."""

    def __init__(self) -> None:
        self._error2: list[torch.Tensor] = []
        self._norm2: list[torch.Tensor] = []
        self._worst: list[torch.Tensor] = []
        self._unwritten: list[torch.Tensor] = []

    def add(self, output: torch.Tensor, part: _Part) -> None:
        error = output.double().sub_(part.reference)
        self._unwritten.append(error.isnan().sum())
        self._error2.append(error.square().sum())
        self._norm2.append(part.reference.square().sum())
        # Where the limit is zero (an empty expert's dW) the error must be zero: 0 / tiny = 0, anything else is huge.
        worst = error.abs_().div_(part.limits().clamp_(min=1e-300))
        self._worst.append(worst.max() if worst.numel() else worst.sum())

    def verdict(self, limit: float) -> Verdict:
        if not self._error2:
            return Verdict(failure="", check=Check(rel_l2=0.0, rel_l2_limit=limit, worst=0.0))
        unwritten = int(torch.stack(self._unwritten).sum())
        if unwritten:
            return Verdict(failure=f"left {unwritten} elements unwritten or not a number", check=None)
        norm2 = float(torch.stack(self._norm2).sum())
        error2 = float(torch.stack(self._error2).sum())
        rel_l2 = math.sqrt(error2 / norm2) if norm2 else math.sqrt(error2)
        worst = float(torch.stack(self._worst).max())
        if not (math.isfinite(rel_l2) and math.isfinite(worst)):
            return Verdict(failure=f"wrong: error is not finite (rel L2 {rel_l2}, worst element {worst})", check=None)
        check = Check(rel_l2=rel_l2, rel_l2_limit=limit, worst=worst)
        if rel_l2 > limit:
            return Verdict(failure=f"wrong: rel L2 {rel_l2:.3g} is above {limit:.3g}", check=check)
        if worst > 1:
            return Verdict(failure=f"wrong: an element is off by {worst:.3g} times its limit", check=check)
        return Verdict(failure="", check=check)
