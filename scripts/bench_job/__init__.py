"""Benchmarks: each prints what it measured, its reference from the same run, their ratio, and p50 and p99.

`scripts/bench/<name>` runs `python -m scripts.bench_job.<module>`, whose main is of this form, and takes `--quick` and
`--json FILE` for `scripts/bench/all`, which runs every one of them:

    options = options_of(__doc__, commits=(2000, "how many"))
    with running_bench(workers=2) as bench:  # a lake of its own, logged in
        rest = Rest(bench.uri, bench.headers)
        rest.create_namespace()
        appender = Appender(rest, LocalFiles(), "t", rest.create_table("t"))
        for _ in range(options.commits):
            appender.append()
    took = milliseconds(appender.seconds)
    found = Result("commit", rate, "/s", Target("≥", 150), p50=p50(took), p99=p99(took))
    report("One client", [found], options)

servers: what is measured, and references (bare Starlette, Java). wrk: many connections. client: a lean client.
results: figures and tables.
"""
