"""The history checker: many clients, many faults, and a proof from the catalog that nothing was lost or doubled.

Read in this order: `history` (what is recorded), `verdict` and `chains` (what must hold of it, pure), `__main__` (the
run), `client`, `workload` and `native` (who writes), `proxy` and `faults` (who spoils), `served` (what is killed),
`closing` (what is settled and read at the end).
"""
