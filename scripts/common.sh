# Shared by every ./dev command: where things are, how a step is shown, how root rights are taken.
# Sourced, never run. Callers set LEASEHOLD_ROOT before sourcing.
# shellcheck shell=bash

# Scratch of this checkout: caches, logs, the demo's data. `./dev clean` removes it whole.
SCRATCH="$LEASEHOLD_ROOT/.leasehold"
# Root's tools (dockerd, mmdebstrap's helpers) are outside an ordinary user's PATH.
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
# Identical bytes whatever the caller's language.
export LC_ALL=C.UTF-8

EXECUTION_TAG="leasehold/execution:dev"
FILES_TAG="leasehold/files:dev"
export SCRATCH EXECUTION_TAG FILES_TAG

# One line per step: `setup: docker engine ... ok`. All progress goes to stderr; stdout is for data.
step_begin() { # area, what
  STEP="$1: $2"
  printf '%s ... ' "$STEP" >&2
}
step_end() { # outcome
  printf '%s\n' "$1" >&2
}
note() { printf '%s\n' "$*" >&2; }
die() {
  printf 'leasehold: %s\n' "$*" >&2
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# Ends the run, by name of the step, where root rights are neither held nor to be had.
require_root() { # what needs it
  [[ $EUID -eq 0 ]] || have sudo || die "$1 needs root, and sudo is not installed: run it once as root"
}

# Runs a command as root: directly, else through sudo. Callers have checked require_root.
as_root() {
  if [[ $EUID -eq 0 ]]; then "$@"; else sudo -- "$@"; fi
}

# A zombie still has a name and a number; only one that can still act counts as alive.
process_is_live() { # pid, process name
  [[ $1 =~ ^[0-9]+$ && $(cat "/proc/$1/comm" 2>/dev/null) == "$2" ]] &&
    [[ $(awk '$1 == "State:" {print $2}' "/proc/$1/status" 2>/dev/null) != [ZX] ]]
}
process_is_gone() { ! process_is_live "$@"; }

# Polls a condition until it holds or the deadline passes; the pause only spaces the tries.
wait_until() { # seconds, command...
  local deadline=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < deadline)) || return 1
    sleep 0.1
  done
}

sha256_of() { sha256sum -- "$1" | cut -d' ' -f1; }
