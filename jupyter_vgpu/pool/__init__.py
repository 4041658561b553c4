"""The rules of the pool, pure: no I/O and no clock of their own. See docs/architecture.md."""
