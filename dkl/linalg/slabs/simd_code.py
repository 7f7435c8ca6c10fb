"""Vector registers from Python: the few row operations that every slab kernel is made of.

A slab is an (n, w) C-contiguous array of w columns of a factor. Numba vectorizes inner loops, but keeps an accumulator
that lives across an outer loop in memory; written as LLVM vectors of w lanes it stays in registers. Measured at
n = 11,220, 77 entries a row, w = 16: 6 times the speed of scipy's sparse-times-dense product, one thread each.

A row is held as vectors whose widths are powers of two, the widest first (24 lanes: 16 and 8). LLVM takes any width, but
rounds one that is no power of two up, and then loads and stores lane by lane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable

    from numba.core.base import BaseContext
    from numba.core.typing.context import Context
    from numba.core.typing.templates import Signature

_INDEX = ir.IntType(64)
_REASSOCIATE = ("reassoc", "contract")


def _pieces(context: BaseContext, array: Any, lanes: Any) -> tuple[list[ir.VectorType], int]:
    """Return the LLVM vectors of one slab row, and the alignment in bytes to assume: one element's, as a row may begin anywhere."""
    element = context.get_data_type(array.dtype)
    # The binary digits of the number of lanes, widest first.
    widths = [1 << bit for bit in reversed(range(lanes.count.bit_length())) if lanes.count >> bit & 1]
    return [ir.VectorType(element, width) for width in widths], array.dtype.bitwidth // 8


def _row_pointers(builder: ir.IRBuilder, base: ir.Value, row: ir.Value, vectors: list[ir.VectorType]) -> list[ir.Value]:
    """Return pointers to the pieces of row `row` of a C-contiguous array."""
    at = builder.gep(base, [builder.mul(row, ir.Constant(_INDEX, sum(vector.count for vector in vectors)))])
    pointers = []
    for vector in vectors:
        pointers.append(builder.bitcast(at, vector.as_pointer()))
        at = builder.gep(at, [ir.Constant(_INDEX, vector.count)])
    return pointers


def _row(
    builder: ir.IRBuilder, base: ir.Value, row: ir.Value, vectors: list[ir.VectorType], align: int
) -> list[ir.Value]:
    """Return the pieces of row `row`, loaded."""
    return [builder.load(pointer, align=align) for pointer in _row_pointers(builder, base, row, vectors)]


def _data(context: BaseContext, builder: ir.IRBuilder, kind: types.Type, value: ir.Value) -> ir.Value:
    """Return a pointer to the first element of an array argument."""
    return context.make_array(kind)(context, builder, value).data


def _as_index(builder: ir.IRBuilder, value: ir.Value, kind: Any) -> ir.Value:
    """Return an integer argument widened to the 64 bits of an LLVM index, by its own signedness."""
    if kind.bitwidth == 64:
        return value
    return builder.sext(value, _INDEX) if kind.signed else builder.zext(value, _INDEX)


def _bits(vector: ir.VectorType) -> int:
    """Return the size of a vector's element."""
    return 64 if isinstance(vector.element, ir.DoubleType) else 32


def _fma(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """Emit LLVM's fused multiply-add on vectors: a * b + c, rounded once, whatever the fastmath flags."""
    vector = c.type
    signature = ir.FunctionType(vector, [vector, vector, vector])
    name = f"llvm.fma.v{vector.count}f{_bits(vector)}"
    return builder.call(cgutils.get_or_insert_function(builder.module, signature, name), [a, b, c])


def _broadcast(builder: ir.IRBuilder, value: ir.Value, vector: ir.VectorType) -> ir.Value:
    """Return `value` in all lanes of a vector: inserted into lane 0, then shuffled."""
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
    return _shuffled(builder, first, [0] * vector.count)


def _shuffled(builder: ir.IRBuilder, value: ir.Value, lanes: list[int]) -> ir.Value:
    """Return the vector of the named lanes of `value`."""
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)
    return builder.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), mask)


@intrinsic
def put_sparse_row(
    typingctx: Context,
    indices: types.Type,
    data: types.Type,
    lo: types.Type,
    hi: types.Type,
    x: types.Type,
    out: types.Type,
    i: types.Type,
    lanes: types.Type,
) -> tuple[Signature, Callable[..., ir.Value]]:
    """Compute out[i, :] = sum over k in [lo, hi) of data[k] * x[indices[k], :], the sum held in registers.

    `x` and `out` are (n, w) C-contiguous of one dtype, which `data` shares; `indices` are integers, none negative.
    """
    return types.void(indices, data, types.int64, types.int64, x, out, types.int64, lanes), _sparse_row(fresh=True)


@intrinsic
def add_sparse_row(
    typingctx: Context,
    indices: types.Type,
    data: types.Type,
    lo: types.Type,
    hi: types.Type,
    x: types.Type,
    out: types.Type,
    i: types.Type,
    lanes: types.Type,
) -> tuple[Signature, Callable[..., ir.Value]]:
    """Compute out[i, :] += what `put_sparse_row` would put there."""
    return types.void(indices, data, types.int64, types.int64, x, out, types.int64, lanes), _sparse_row(fresh=False)


def _sparse_row(fresh: bool) -> Callable[..., ir.Value]:
    """Return the code of a sparse row's product, which starts from zeros (`fresh`) or adds to the row."""

    def codegen(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]
    ) -> ir.Value:
        indices_kind, data_kind, _, _, x_kind, out_kind, _, lanes_kind = signature.args
        indices_value, data_value, lo, hi, x_value, out_value, i, _ = arguments
        vectors, align = _pieces(context, x_kind, lanes_kind)
        columns = _data(context, builder, indices_kind, indices_value)
        weights = _data(context, builder, data_kind, data_value)
        source = _data(context, builder, x_kind, x_value)
        targets = _row_pointers(builder, _data(context, builder, out_kind, out_value), i, vectors)

        # The loop is built by hand for the accumulators to be phi nodes, which stay in registers.
        start = builder.block
        head, body, end = (builder.append_basic_block(name) for name in ("head", "body", "end"))
        initial = [
            ir.Constant(v, None) if fresh else builder.load(t, align=align)
            for v, t in zip(vectors, targets, strict=True)
        ]
        builder.branch(head)

        builder.position_at_end(head)
        k, totals = builder.phi(_INDEX), [builder.phi(vector) for vector in vectors]
        k.add_incoming(lo, start)
        for total, value in zip(totals, initial, strict=True):
            total.add_incoming(value, start)
        builder.cbranch(builder.icmp_signed("<", k, hi), body, end)

        builder.position_at_end(body)
        j = _as_index(builder, builder.load(builder.gep(columns, [k])), indices_kind.dtype)
        weight = builder.load(builder.gep(weights, [k]))
        k.add_incoming(builder.add(k, ir.Constant(_INDEX, 1)), body)
        for total, piece in zip(totals, _row(builder, source, j, vectors, align), strict=True):
            total.add_incoming(_fma(builder, _broadcast(builder, weight, piece.type), piece, total), body)
        builder.branch(head)

        builder.position_at_end(end)
        _store(builder, totals, targets, align)
        return context.get_dummy_value()

    return codegen


@intrinsic
def combine_rows(
    typingctx: Context,
    coefficients: types.Type,
    arrays: types.Type,
    rows: types.Type,
    out: types.Type,
    i: types.Type,
    lanes: types.Type,
) -> tuple[Signature, Callable[..., ir.Value]]:
    """Compute out[i, :] = sum over k of coefficients[k] * arrays[k][rows[k], :], all of them tuples.

    Arrays and `out` are (n, w) C-contiguous; where their precisions differ the sum is in double and rounded once. `out` may be among
    the arrays. A loop over columns that numba compiles cannot know that, and reads and writes them one by one.
    """

    def codegen(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]
    ) -> ir.Value:
        coefficients_kind, arrays_kind, _, out_kind, _, lanes_kind = signature.args
        coefficients_value, arrays_value, rows_value, out_value, i, _ = arguments
        kinds = [*arrays_kind]
        widest = max([out_kind, *kinds], key=lambda kind: kind.dtype.bitwidth)
        vectors, _ = _pieces(context, widest, lanes_kind)
        totals: list[ir.Value] = []
        for k, kind in enumerate(kinds):
            own, align = _pieces(context, kind, lanes_kind)
            base = _data(context, builder, kind, builder.extract_value(arrays_value, k))
            pieces = _row(builder, base, builder.extract_value(rows_value, k), own, align)
            pieces = [_rounded(builder, piece, vector) for piece, vector in zip(pieces, vectors, strict=True)]
            given = builder.extract_value(coefficients_value, k)
            weight = context.cast(builder, given, [*coefficients_kind][k], widest.dtype)
            weights = [_broadcast(builder, weight, vector) for vector in vectors]
            if not totals:
                totals = [builder.fmul(a, b) for a, b in zip(weights, pieces, strict=True)]
            else:
                totals = [_fma(builder, a, b, c) for a, b, c in zip(weights, pieces, totals, strict=True)]
        own, align = _pieces(context, out_kind, lanes_kind)
        targets = _row_pointers(builder, _data(context, builder, out_kind, out_value), i, own)
        totals = [_rounded(builder, total, vector) for total, vector in zip(totals, own, strict=True)]
        _store(builder, totals, targets, align)
        return context.get_dummy_value()

    return types.void(coefficients, arrays, rows, out, types.int64, lanes), codegen


def _rounded(builder: ir.IRBuilder, value: ir.Value, vector: ir.VectorType) -> ir.Value:
    """Return a vector in the precision of another type of vector of its width."""
    if value.type == vector:
        return value
    return (builder.fpext if _bits(vector) == 64 else builder.fptrunc)(value, vector)


def _store(builder: ir.IRBuilder, pieces: list[ir.Value], targets: list[ir.Value], align: int) -> None:
    for piece, target in zip(pieces, targets, strict=True):
        builder.store(piece, target, align=align)


@intrinsic
def row_dot(
    typingctx: Context, x: types.Type, i: types.Type, y: types.Type, j: types.Type, lanes: types.Type
) -> tuple[Signature, Callable[..., ir.Value]]:
    """Return the sum over c of x[i, c] * y[j, c], in the register reduction's order, as float64."""
    signature = types.float64(x, types.int64, y, types.int64, lanes)

    def codegen(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]
    ) -> ir.Value:
        x_kind, _, y_kind, _, lanes_kind = signature.args
        x_value, i, y_value, j, _ = arguments
        vectors, align = _pieces(context, x_kind, lanes_kind)
        left = _row(builder, _data(context, builder, x_kind, x_value), i, vectors, align)
        right = _row(builder, _data(context, builder, y_kind, y_value), j, vectors, align)
        return _reduced(builder, [builder.fmul(a, b) for a, b in zip(left, right, strict=True)])

    return signature, codegen


@intrinsic
def crossed_dot(
    typingctx: Context, x: types.Type, y: types.Type, i: types.Type, j: types.Type, lanes: types.Type
) -> tuple[Signature, Callable[..., ir.Value]]:
    """Return the sum over c of x[i, c] * y[j, c] + y[i, c] * x[j, c], reduced once, as float64."""
    signature = types.float64(x, y, types.int64, types.int64, lanes)

    def codegen(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]
    ) -> ir.Value:
        x_kind, y_kind, _, _, lanes_kind = signature.args
        x_value, y_value, i, j, _ = arguments
        vectors, align = _pieces(context, x_kind, lanes_kind)
        bases = _data(context, builder, x_kind, x_value), _data(context, builder, y_kind, y_value)
        x_i, y_i, x_j, y_j = (_row(builder, base, row, vectors, align) for row in (i, j) for base in bases)
        return _reduced(
            builder,
            [_fma(builder, a, d, builder.fmul(b, c)) for a, b, c, d in zip(x_i, y_i, x_j, y_j, strict=True)],
        )

    return signature, codegen


def _reduced(builder: ir.IRBuilder, pieces: list[ir.Value]) -> ir.Value:
    """Return the sum of the lanes of a row's pieces, as float64: the widest is folded until it can be added to the next.

    Without "reassoc" the reduction would add lane by lane; with it LLVM adds by halves, in an order that is fixed for a width, and
    so for a rank and dtype.
    """
    total = pieces[0]
    for piece in pieces[1:]:
        while total.type.count > piece.type.count:
            half = total.type.count // 2
            low, high = (_shuffled(builder, total, list(range(k, k + half))) for k in (0, half))
            total = builder.fadd(low, high)
        total = builder.fadd(total, piece)
    vector = total.type
    signature = ir.FunctionType(vector.element, [vector.element, vector])
    name = f"llvm.vector.reduce.fadd.v{vector.count}f{_bits(vector)}"
    reduce = cgutils.get_or_insert_function(builder.module, signature, name)
    # -0.0 is addition's neutral element: 0.0 would turn a sum of -0.0 into 0.0.
    whole = builder.call(reduce, [ir.Constant(vector.element, -0.0), total], fastmath=_REASSOCIATE)
    return whole if _bits(vector) == 64 else builder.fpext(whole, ir.DoubleType())
