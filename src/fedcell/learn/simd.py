"""SIMD vectors of float32 as values in code that Numba compiles.

LLVM keeps a ``<64 x float>`` in four AVX-512 registers (eight AVX ones, sixteen SSE ones), which its own
vectoriser does not do for an accumulator that is an array. So the kernels of ``mlp_kernel`` name their registers:
``vload`` makes such a value from an array, ``vfma`` computes with it, ``vstore`` puts it back. The number of floats
in a vector is ``STEP * len(lanes)``: the *type* of the tuple ``lanes`` carries it, so one function in the source is
compiled for each width and Numba's cache tells them apart.

Nothing here checks a bound; whoever calls a kernel has. All sums are plain multiply-adds with LLVM's ``contract``
flag (an FMA where there is one), and a vector holds NaN and infinity like any float.

Numba's cache looks at the file of the kernel it compiles, not at this one: touch ``mlp_kernel.py`` after a change here.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

STEP = 16
FLOAT = ir.FloatType()
INT32 = ir.IntType(32)
INT64 = ir.IntType(64)

Codegen = Callable[[Any, Any, Any, Any], Any]
Intrinsic = tuple[Any, Codegen]


def instruction(definition: Callable[..., Intrinsic]) -> Any:
    """Make a function of types (first the typing context) one that compiled code calls with values."""
    return intrinsic(definition)


class Lanes(types.Type):
    """The Numba type of a vector of ``width`` floats."""

    def __init__(self, width: int) -> None:
        self.width = width
        super().__init__(name=f"Lanes({width})")


@register_model(Lanes)
class LanesModel(models.PrimitiveModel):
    """In LLVM it is a vector."""

    def __init__(self, manager: Any, kind: Lanes) -> None:
        super().__init__(manager, kind, ir.VectorType(FLOAT, kind.width))  # type: ignore[no-untyped-call]


def _pointer(context: Any, builder: Any, kind: Any, array: Any, offset: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [offset])


def _splat(builder: Any, scalar: Any, width: int) -> Any:
    nothing = ir.Constant(ir.VectorType(FLOAT, width), ir.Undefined)
    first = builder.insert_element(nothing, scalar, ir.Constant(INT32, 0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(INT32, width), [0] * width))


def _multiply_add(builder: Any, total: Any, left: Any, right: Any) -> Any:
    return builder.fadd(total, builder.fmul(left, right, flags=("contract",)), flags=("contract",))


@instruction
def vload(_typing: Any, array: Any, _offset: Any, lanes: Any) -> Intrinsic:
    """The vector of STEP * len(lanes) floats from array[offset] on."""
    width = STEP * len(lanes)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
        kind = ir.VectorType(FLOAT, width)
        return builder.load(builder.bitcast(pointer, kind.as_pointer()), align=4)

    return Lanes(width)(array, types.int64, lanes), codegen


@instruction
def vstore(_typing: Any, array: Any, _offset: Any, vector: Any) -> Intrinsic:
    """Store the vector at array[offset:]."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
        builder.store(args[2], builder.bitcast(pointer, args[2].type.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(array, types.int64, vector), codegen


@instruction
def vzero(_typing: Any, lanes: Any) -> Intrinsic:
    """Return a vector of zeros."""
    width = STEP * len(lanes)

    def codegen(_context: Any, _builder: Any, _signature: Any, _args: Any) -> Any:
        return ir.Constant(ir.VectorType(FLOAT, width), [0.0] * width)

    return Lanes(width)(lanes), codegen


@instruction
def vfma(_typing: Any, total: Any, _scalar: Any, vector: Any) -> Intrinsic:
    """Return total + scalar * vector."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return _multiply_add(builder, args[0], _splat(builder, args[1], total.width), args[2])

    return total(total, types.float32, vector), codegen


@instruction
def vmuladd(_typing: Any, total: Any, left: Any, right: Any) -> Intrinsic:
    """The vector total + left * right, element by element."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return _multiply_add(builder, *args)

    return total(total, left, right), codegen


@instruction
def vsum(_typing: Any, vector: Any) -> Intrinsic:
    """Return the sum of the elements, added in pairs."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(FLOAT, [FLOAT, args[0].type])
        function = builder.module.declare_intrinsic(f"llvm.vector.reduce.fadd.v{vector.width}f32", fnty=kind)
        return builder.call(function, [ir.Constant(FLOAT, -0.0), args[0]], fastmath=("reassoc",))

    return types.float32(vector), codegen


@instruction
def vgate(_typing: Any, gate: Any, vector: Any) -> Intrinsic:
    """The vector where gate > 0, else 0; ``vgate(z, z)`` is ReLU. A NaN gate lets NaN through, as in PyTorch."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        zero = ir.Constant(args[0].type, [0.0] * gate.width)
        return builder.select(builder.fcmp_ordered("<=", args[0], zero), zero, args[1])

    return vector(gate, vector), codegen


@instruction
def item(_typing: Any, array: Any, _index: Any) -> Intrinsic:
    """array[index] of a flat array, without Python's wrap-around of negative indices."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_pointer(context, builder, signature.args[0], args[0], args[1]))

    return array.dtype(array, types.int64), codegen


@instruction
def pixel(_typing: Any, values: Any, _index: Any, table: Any) -> Intrinsic:
    """A raw input in the network's scale: table[byte] for bytes, table[0] * float for floats."""
    is_byte = values.dtype == types.uint8

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        raw = builder.load(_pointer(context, builder, signature.args[0], args[0], args[1]))
        at = builder.zext(raw, INT64) if is_byte else ir.Constant(INT64, 0)
        factor = builder.load(_pointer(context, builder, signature.args[2], args[2], at))
        return factor if is_byte else builder.fmul(raw, factor)

    return types.float32(values, types.int64, table), codegen


@instruction
def lowest_bit(_typing: Any, _word: Any) -> Intrinsic:
    """The position of the lowest 1 of a nonzero 64-bit word."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), codegen


@instruction
def vmax(_typing: Any, left: Any, right: Any) -> Intrinsic:
    """Return the element-wise maximum."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", args[1], args[0]), args[1], args[0])

    return left(left, right), codegen


EXP_POLYNOMIAL = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5, 1.0, 1.0)
LN_2_HIGH, LN_2_LOW = 0.693359375, -2.12194440e-4  # the high part times a small integer is exact
ROUNDER = 1.5 * 2.0**23


@instruction
def vexp(_typing: Any, vector: Any) -> Intrinsic:
    """e^x of each element x <= 0, within 2 ulp (e^-87 below that): e^x = 2^n e^r, as in Cephes' expf.

    ``math.exp`` would be a library call for each element. Adding 1.5 * 2^23 rounds x/ln 2 to the integer n and leaves
    it in the low bits: no conversion to an integer, whose result for NaN would be undefined. Only for functions
    compiled without the flag ``reassoc``, which would undo the rounding.
    """

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        kind = args[0].type
        bits = ir.VectorType(INT32, vector.width)

        def constant(value: float) -> Any:
            return ir.Constant(kind, [value] * vector.width)

        x = builder.select(builder.fcmp_ordered("<", args[0], constant(-87.0)), constant(-87.0), args[0])
        rounded = _multiply_add(builder, constant(ROUNDER), x, constant(1.4426950408889634))
        n = builder.fsub(rounded, constant(ROUNDER))
        r = _multiply_add(builder, x, n, constant(-LN_2_HIGH))
        r = _multiply_add(builder, r, n, constant(-LN_2_LOW))
        y = constant(EXP_POLYNOMIAL[0])
        for coefficient in EXP_POLYNOMIAL[1:]:
            y = _multiply_add(builder, constant(coefficient), y, r)
        exponent = builder.shl(builder.bitcast(rounded, bits), ir.Constant(bits, [23] * vector.width))
        power = builder.add(exponent, ir.Constant(bits, [127 << 23] * vector.width))
        return builder.fmul(y, builder.bitcast(power, kind))

    return vector(vector), codegen


@instruction
def prefetch(_typing: Any, array: Any, _index: Any) -> Intrinsic:
    """Ask for the cache line of array[index]; never faults."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, INT32, INT32, INT32])
        function = builder.module.declare_intrinsic("llvm.prefetch.p0", fnty=kind)
        hints = [ir.Constant(INT32, hint) for hint in (0, 3, 1)]  # to read; keep in all caches; data
        builder.call(function, [builder.bitcast(pointer, byte), *hints])
        return context.get_dummy_value()

    return types.void(array, types.int64), codegen
