# shellcheck shell=bash
# All tests, on a real PostgreSQL and real containers.

# What the tests start as programs. The demo builds the same, so that neither builds for the other in vain.
build_programs() {
  note "build: cargo build"
  cargo build --workspace --bins --locked
}

# Both mechanisms are tested unless LEASEHOLD_TEST_MECHANISMS=docker says that this machine has no gVisor: a machine that only
# lacks it fails.
tested_mechanisms() {
  local mechanisms=${LEASEHOLD_TEST_MECHANISMS-docker gvisor}
  case ${mechanisms//,/ } in
  'docker gvisor' | 'gvisor docker') echo both ;;
  docker) echo docker ;;
  *) die "LEASEHOLD_TEST_MECHANISMS is 'docker' or 'docker gvisor', not '$mechanisms'" ;;
  esac
}

# The runner's own closing lines come last: whoever reads the log finds the counts there.
run_tests() { # arguments of the runner
  local mechanisms
  local -a leave_out=()
  mechanisms=$(tested_mechanisms)
  [[ $mechanisms == both ]] || note "test: LEASEHOLD_TEST_MECHANISMS=docker leaves out everything on gVisor"
  if have cargo-nextest; then
    note "test: cargo nextest"
    # Unit tests of modules of that name need no gVisor.
    [[ $mechanisms == both ]] || leave_out=(-E 'not test(/(^|::)gvisor::/) or kind(lib)')
    exec cargo nextest run --workspace --locked ${leave_out[@]+"${leave_out[@]}"} "$@"
  else
    note "test: cargo test (cargo-nextest is not installed)"
    if [[ $mechanisms != both ]]; then
      leave_out=(--skip gvisor::)
      # It skips by name alone: unit tests of modules of that name, which need no gVisor, come first and by themselves.
      (($# > 0)) || cargo test --workspace --locked --no-fail-fast --lib gvisor::
    fi
    # After `--` the words are the tests' own.
    [[ " $* " == *" -- "* ]] || set -- "$@" --
    exec cargo test --workspace --locked --no-fail-fast "$@" ${leave_out[@]+"${leave_out[@]}"}
  fi
}
