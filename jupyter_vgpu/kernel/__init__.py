"""Inside the kernel: ``startup.py`` brings ``%vgpu`` into every kernel that runs as a tenant, ``magics.py`` is what it does.

Neither is imported from here: both are loaded by path, in Python environments that need not have this package.
"""
