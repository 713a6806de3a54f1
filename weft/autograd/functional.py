"""Derivatives of functions: jacobian, hessian, and products of these with vectors."""

from ..eager.autograd.differentials import hessian, hvp, jacobian, jvp, vhp, vjp

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
