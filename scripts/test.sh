# shellcheck shell=bash
# All tests, on a real PostgreSQL and real containers.

# The runner's own closing lines come last: whoever reads the log finds the counts there.
run_tests() { # arguments of the runner
  if have cargo-nextest; then
    note "test: cargo nextest"
    cargo nextest run --workspace --locked "$@"
  else
    note "test: cargo test (cargo-nextest is not installed)"
    cargo test --workspace --locked "$@"
  fi
}
