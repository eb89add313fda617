# shellcheck shell=bash
# All tests, on a real PostgreSQL and real containers.

# What the tests start as programs. The demo builds the same, so that neither builds for the other in vain.
build_programs() {
  note "build: cargo build"
  cargo build --workspace --bins --locked
}

# The runner's own closing lines come last: whoever reads the log finds the counts there.
run_tests() { # arguments of the runner
  if have cargo-nextest; then
    note "test: cargo nextest"
    exec cargo nextest run --workspace --locked "$@"
  else
    note "test: cargo test (cargo-nextest is not installed)"
    exec cargo test --workspace --locked --no-fail-fast "$@"
  fi
}
