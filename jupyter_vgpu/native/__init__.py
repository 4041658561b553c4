"""Python's view of native/: where the libraries are, the page shared with a tenant, the protocol, the scheduler, the environment."""
