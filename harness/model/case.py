"""Case: one operation on one shape with one output type; the row of a table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from harness.errors import ShapesError
from harness.model.shape import Shape

OPS: tuple[str, ...] = ("fwd", "dX", "dW", "ckpt", "ckpt ES")
"""Operations in the order of tables: Y = X Wᵀ, dX = G W, dW = Gᵀ X, and the two checkpointed training steps."""

PRODUCTS: tuple[str, ...] = ("fwd", "dX", "dW")
"""The operations that are one grouped product; a step returns the results of all three."""

STEPS: tuple[str, ...] = ("ckpt", "ckpt ES")
"""Forward in a non-reentrant checkpoint and both gradients by autograd, with early stop off and on."""

OUT_DTYPES: tuple[str, ...] = ("bf16", "fp32")
BYTES_OF = {"bf16": 2, "fp32": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row: an operation on a shape.

    Attributes
    ----------
    suite
        The suite of ``shapes.yaml`` it came from, or ``adhoc``.
    op
        One of :data:`OPS`.
    out_dtype
        Type of the output; ``fp32`` only for dW.
    """

    suite: str
    op: str
    shape: Shape
    out_dtype: str = "bf16"

    def __post_init__(self) -> None:
        if self.op not in OPS:
            raise ShapesError(f"op of {self.shape.name!r} must be one of {', '.join(OPS)}, got {self.op!r}")
        if self.out_dtype not in OUT_DTYPES:
            raise ShapesError(f"out_dtype of {self.shape.name!r} must be bf16 or fp32, got {self.out_dtype!r}")
        if self.out_dtype == "fp32" and self.op != "dW":
            raise ShapesError(f"out_dtype fp32 of {self.shape.name!r} needs op dW, got {self.op!r}")

    @property
    def name(self) -> str:
        """The row's name as published: the shape's, and ``fp32`` when the output is FP32."""
        return f"{self.shape.name} fp32" if self.out_dtype == "fp32" else self.shape.name

    @property
    def case_id(self) -> str:
        """Unique within a suite: operation and name."""
        return f"{self.op} {self.name}"

    @property
    def is_step(self) -> bool:
        """Whether one call is a training step through autograd, one of :data:`STEPS`."""
        return self.op in STEPS

    @property
    def products(self) -> tuple[Case, ...]:
        """The products whose results one call returns, in order: itself, or of a step fwd (y), dX and dW."""
        return tuple(replace(self, op=op) for op in PRODUCTS) if self.is_step else (self,)

    @property
    def flops(self) -> int:
        """Floating-point operations of one call, from the rows that exist: 2 N K sum(m_i) per GEMM.

        ``ckpt`` runs forward twice and both gradients, ``ckpt ES`` forward once and both gradients.
        """
        gemms = {"ckpt": 4, "ckpt ES": 3}.get(self.op, 1)
        return gemms * 2 * self.shape.M * self.shape.N * self.shape.K

    @property
    def min_bytes(self) -> int:
        """Fewest bytes that one call moves through device memory: each input read once, each output written once.

        Weights of an empty expert are not read; the weight gradient of an empty expert is written (zeros).
        """
        return self.input_bytes + self.output_bytes

    @property
    def input_bytes(self) -> int:
        """Bytes of the inputs that a call must read: of a training step's, x, w and g once each."""
        s = self.shape
        live = sum(size > 0 for size in s.group_sizes)
        x, w, g = 2 * s.M * s.K, 2 * live * s.N * s.K, 2 * s.M * s.N
        return {"fwd": x + w, "dX": g + w, "dW": g + x}.get(self.op, x + w + g)

    @property
    def output_bytes(self) -> int:
        """Bytes of the outputs: of a training step's, y, dX and dW."""
        s = self.shape
        y, dx = 2 * s.M * s.N, 2 * s.M * s.K
        dw = BYTES_OF[self.out_dtype] * s.E * s.N * s.K
        return {"fwd": y, "dX": dx, "dW": dw}.get(self.op, y + dx + dw)


def matches(case_id: str, glob: str) -> bool:
    """Return whether ``glob`` matches a whole :attr:`Case.case_id` or the whole name in it; case counts."""
    name = next(case_id.removeprefix(f"{op} ") for op in reversed(OPS) if case_id.startswith(f"{op} "))
    return fnmatchcase(name, glob) or fnmatchcase(case_id, glob)
