"""Vector registers from Python: the few row operations that every slab kernel is made of.

A slab is an (n, w) C-contiguous array of w columns of a factor. Numba vectorizes inner loops, but keeps an accumulator
that lives across an outer loop in memory; written as LLVM vectors of w lanes it stays in registers. Measured at
n = 11,220, 77 entries a row, w = 16: 6 times the speed of scipy's sparse-times-dense product, one thread each.

The width is part of the type: kernels take `lanes`, a tuple of w zeros, and compile once for each width and dtype.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

_INDEX = ir.IntType(64)
_REASSOCIATE = ("reassoc", "contract")


def lanes_of(width: int) -> tuple[int, ...]:
    """The width of a slab as the kernels take it: a tuple of `width` zeros, whose length is part of its numba type."""
    return (0,) * width


def _vector_type(context: Any, array: Any, lanes: Any) -> tuple[Any, int]:
    """LLVM vector of one slab row, and the alignment in bytes that may be assumed (that of one element)."""
    element = context.get_data_type(array.dtype)
    return ir.VectorType(element, lanes.count), array.dtype.bitwidth // 8


def _row_pointer(builder: Any, base: Any, row: Any, vector: Any) -> Any:
    """Pointer to row `row` of a C-contiguous array, as to one vector of w lanes."""
    offset = builder.mul(row, ir.Constant(_INDEX, vector.count))
    return builder.bitcast(builder.gep(base, [offset]), vector.as_pointer())


def _data(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Pointer to the first element of an array argument."""
    return context.make_array(kind)(context, builder, value).data


def _as_index(builder: Any, value: Any, kind: Any) -> Any:
    """An integer argument widened to the 64 bits of an LLVM index, by its own signedness."""
    if kind.bitwidth == 64:
        return value
    return builder.sext(value, _INDEX) if kind.signed else builder.zext(value, _INDEX)


def _fma(module: Any, vector: Any) -> Any:
    """LLVM's fused multiply-add on vectors: a * b + c, rounded once, whatever the loop's fastmath flags are."""
    bits = 64 if isinstance(vector.element, ir.DoubleType) else 32
    signature = ir.FunctionType(vector, [vector, vector, vector])
    return cgutils.get_or_insert_function(module, signature, f"llvm.fma.v{vector.count}f{bits}")


@intrinsic
def add_sparse_row(typingctx: Any, indices: Any, data: Any, lo: Any, hi: Any, x: Any, out: Any, i: Any, lanes: Any):  # type: ignore[no-untyped-def]
    """out[i, :] += sum over k in [lo, hi) of data[k] * x[indices[k], :], the sum held in registers.

    `x` and `out` are (n, w) C-contiguous of one dtype, which `data` shares; `indices` are integers, none negative.
    """
    signature = types.void(indices, data, types.int64, types.int64, x, out, types.int64, lanes)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        indices_kind, data_kind, _, _, x_kind, out_kind, _, lanes_kind = signature.args
        indices_value, data_value, lo, hi, x_value, out_value, i, _ = arguments
        vector, align = _vector_type(context, x_kind, lanes_kind)
        columns = _data(context, builder, indices_kind, indices_value)
        weights = _data(context, builder, data_kind, data_value)
        source = _data(context, builder, x_kind, x_value)
        target = _row_pointer(builder, _data(context, builder, out_kind, out_value), i, vector)

        # The loop is built by hand for the accumulator to be a phi node, which stays in registers.
        start = builder.block
        head, body, end = (builder.append_basic_block(name) for name in ("head", "body", "end"))
        initial = builder.load(target, align=align)
        builder.branch(head)

        builder.position_at_end(head)
        k, total = builder.phi(_INDEX), builder.phi(vector)
        k.add_incoming(lo, start)
        total.add_incoming(initial, start)
        builder.cbranch(builder.icmp_signed("<", k, hi), body, end)

        builder.position_at_end(body)
        j = _as_index(builder, builder.load(builder.gep(columns, [k])), indices_kind.dtype)
        row = builder.load(_row_pointer(builder, source, j, vector), align=align)
        # A weight is broadcast to all lanes: inserted into lane 0, then shuffled.
        undefined = ir.Constant(vector, ir.Undefined)
        first = builder.insert_element(
            undefined, builder.load(builder.gep(weights, [k])), ir.Constant(ir.IntType(32), 0)
        )
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
        weight = builder.shuffle_vector(first, undefined, zeros)
        k.add_incoming(builder.add(k, ir.Constant(_INDEX, 1)), body)
        total.add_incoming(builder.call(_fma(builder.module, vector), [weight, row, total]), body)
        builder.branch(head)

        builder.position_at_end(end)
        builder.store(total, target, align=align)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def row_dot(typingctx: Any, x: Any, i: Any, y: Any, j: Any, lanes: Any):  # type: ignore[no-untyped-def]
    """sum over c of x[i, c] * y[j, c], in the order of the register reduction (fixed for a width); as float64."""
    signature = types.float64(x, types.int64, y, types.int64, lanes)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x_kind, _, y_kind, _, lanes_kind = signature.args
        x_value, i, y_value, j, _ = arguments
        vector, align = _vector_type(context, x_kind, lanes_kind)
        left = builder.load(_row_pointer(builder, _data(context, builder, x_kind, x_value), i, vector), align=align)
        right = builder.load(_row_pointer(builder, _data(context, builder, y_kind, y_value), j, vector), align=align)
        return _reduced(builder, builder.fmul(left, right), vector)

    return signature, codegen


@intrinsic
def crossed_dot(typingctx: Any, x: Any, y: Any, i: Any, j: Any, lanes: Any):  # type: ignore[no-untyped-def]
    """sum over c of x[i, c] * y[j, c] + y[i, c] * x[j, c], added lane by lane and reduced once; as float64."""
    signature = types.float64(x, y, types.int64, types.int64, lanes)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x_kind, y_kind, _, _, lanes_kind = signature.args
        x_value, y_value, i, j, _ = arguments
        vector, align = _vector_type(context, x_kind, lanes_kind)
        bases = _data(context, builder, x_kind, x_value), _data(context, builder, y_kind, y_value)
        x_i, y_i, x_j, y_j = (
            builder.load(_row_pointer(builder, base, row, vector), align=align) for row in (i, j) for base in bases
        )
        both = builder.call(_fma(builder.module, vector), [x_i, y_j, builder.fmul(y_i, x_j)])
        return _reduced(builder, both, vector)

    return signature, codegen


def _reduced(builder: Any, lanes: Any, vector: Any) -> Any:
    """The sum of a vector's lanes, as float64.

    Without "reassoc" the reduction would add lane by lane; with it LLVM adds by halves, in an order that is fixed for a width, and
    so for a rank and dtype.
    """
    bits = 64 if isinstance(vector.element, ir.DoubleType) else 32
    signature = ir.FunctionType(vector.element, [vector.element, vector])
    reduce = cgutils.get_or_insert_function(
        builder.module, signature, f"llvm.vector.reduce.fadd.v{vector.count}f{bits}"
    )
    total = builder.call(reduce, [ir.Constant(vector.element, -0.0), lanes], fastmath=_REASSOCIATE)
    return total if bits == 64 else builder.fpext(total, ir.DoubleType())
