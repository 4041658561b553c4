"""The process that owns the pool's state, and the client to it.

Every noun has its file: leases and their pages (tenants, ledger), who waits (queue), who listens (events), what is remembered (journal),
what is allowed (policy_file), what the devices say (readings), which devices are ours (locks). `operations` is the one layer over them;
`http` and `shim_socket` are its two doors.
"""
