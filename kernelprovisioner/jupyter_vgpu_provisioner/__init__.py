"""Kernel provisioners that put a kernel under a lease of the GPU pool."""

from .local import VgpuProvisioner

__all__ = ["VgpuProvisioner"]
