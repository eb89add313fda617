# Measures what docs/performance.md claims, each figure beside its reference in one run, with release builds.
# shellcheck shell=bash

bench() { # names of measures, all by default
  note "build: cargo build --release (the service, the benchmarks)"
  cargo build --release --locked -p service --bin leasehold
  cargo build --release --locked -p event-log --example append_bench
  cargo build --release --locked -p runtime-adapter --example dispatch_bench
  cargo build --release --locked -p guest --bin guest --example scan_bench
  cargo build --release --locked -p tests --bin bench
  target/release/bench "$SCRATCH/bench.json" "$@" || die "a goal was missed, or a measurement failed: see above"
}
