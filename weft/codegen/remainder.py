"""The remainder of floats on machines without an instruction or a library for it, exact: a function of the module."""

from __future__ import annotations

from .builder import Builder, Value

_NAME = "weft.remainder"

# r, the size of x, loses multiples of d = |y| 2**k, of which less than 2**51 fit into it, until it is below |y|: the
# quotient is a whole number that may be one off, and r - q d has no more bits than r and d have.
_TEXT = f"""define internal double @{_NAME}(double %x, double %y) {{
entry:
  %ax = call double @llvm.fabs.f64(double %x)
  %ay = call double @llvm.fabs.f64(double %y)
  %tiny = fcmp olt double %ay, 0x0010000000000000
  %grown = fmul double %ay, 0x4350000000000000
  %normal = select i1 %tiny, double %grown, double %ay
  %ybits = bitcast double %normal to i64
  %yfield = lshr i64 %ybits, 52
  %moved = select i1 %tiny, i64 54, i64 0
  %ye = sub i64 %yfield, %moved
  %finite = fcmp olt double %ax, 0x7FF0000000000000
  %nonzero = fcmp ogt double %ay, 0.0
  %fine = and i1 %finite, %nonzero
  br i1 %fine, label %head, label %none
none:
  ret double 0x7FF8000000000000
head:
  %r = phi double [ %ax, %entry ], [ %next, %turn ]
  %more = fcmp oge double %r, %ay
  br i1 %more, label %turn, label %done
turn:
  %rbits = bitcast double %r to i64
  %re = lshr i64 %rbits, 52
  %gap = sub i64 %re, %ye
  %above = sub i64 %gap, 50
  %some = icmp sgt i64 %above, 0
  %k = select i1 %some, i64 %above, i64 0
  %k1 = lshr i64 %k, 1
  %k2 = sub i64 %k, %k1
  %f1 = add i64 %k1, 1023
  %f2 = add i64 %k2, 1023
  %b1 = shl i64 %f1, 52
  %b2 = shl i64 %f2, 52
  %p1 = bitcast i64 %b1 to double
  %p2 = bitcast i64 %b2 to double
  %d1 = fmul double %ay, %p1
  %d = fmul double %d1, %p2
  %ratio = fdiv double %r, %d
  %q = call double @llvm.trunc.f64(double %ratio)
  %minus = fneg double %q
  %left = call double @llvm.fma.f64(double %minus, double %d, double %r)
  %below = fcmp olt double %left, 0.0
  %added = fadd double %left, %d
  %lifted = select i1 %below, double %added, double %left
  %over = fcmp oge double %lifted, %d
  %less = fsub double %lifted, %d
  %next = select i1 %over, double %less, double %lifted
  br label %head
done:
  %signed = call double @llvm.copysign.f64(double %r, double %x)
  %unordered = fcmp uno double %r, %ay
  %result = select i1 %unordered, double 0x7FF8000000000000, double %signed
  ret double %result
}}"""


def float_remainder(b: Builder, x: Value, y: Value) -> Value:
    """What x leaves when whole multiples of y are taken away, with the sign of x."""
    if b.has_library:
        return b.binary("frem", x, y)
    b.globals.setdefault(_NAME, _TEXT)
    for name, count in (("fabs", 1), ("trunc", 1), ("fma", 3), ("copysign", 2)):
        full = f"llvm.{name}.f64"
        b.declarations.setdefault(full, f"declare double @{full}({', '.join(['double'] * count)})")
    wide = [b.convert("fpext", value, "double") for value in (x, y)]
    result = b.poison("double", x.lanes)
    for lane in range(x.lanes):
        passed = ", ".join(f"double {b.extract(value, lane).ref}" for value in wide)
        item = b.effect("double", 1, f"call double @{_NAME}({passed})")
        result = item if x.lanes == 1 else b.insert(result, item, lane)
    return b.convert("fptrunc", result, x.element)
