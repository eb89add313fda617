# Everything that is checked without running the product.
# shellcheck shell=bash

# Patterns are written so that they do not match themselves.
FORBIDDEN=(
  'a left-over marker|\b(T[O]DO|F[I]XME|X[X]X|H[A]CK)\b|\b(todo|unimplemented|dbg)[!]\('
  'an attribute that hides instead of explaining|^[[:space:]]*#!?[[](allow|ignore)\b'
  'a path of one machine|/[h]ome/[a-z]|/[U]sers/|/[r]oot/[.](cargo|rustup|pyenv)|/[t]mp/team|/[w]ork/(main|shared)'
  'a package registry|(index[.]|static[.])?crates[.]io|pypi[.]org|registry[.]npmjs|(deb|security)[.]debian[.]org|registry-1[.]docker|hub[.]docker|ghcr[.]io|quay[.]io'
  'a mark of an unfinished merge|^(<{7}|={7}|>{7})( |$)'
)
# A longer file is split.
SOURCE_LINES_MAX=600

# Every file of the project, also where the checkout is an unpacked archive without git.
project_files() {
  if have git && git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    git ls-files --cached --others --exclude-standard | while IFS= read -r file; do
      [[ -f $file ]] && printf '%s\n' "$file"
    done
  else
    find . -type d \( -name target -o -name 'target-*' -o -name .leasehold -o -name .git \) -prune -o -type f -printf '%P\n'
  fi | sort -u
}

# Fails when a file holds what the house rules keep out. Cargo.lock names its registry by design.
check_house_rules() {
  local rule what pattern found failed=0 file lines
  local -a files
  mapfile -t files < <(project_files | grep -vx 'Cargo.lock')
  for rule in "${FORBIDDEN[@]}"; do
    what=${rule%%|*}
    pattern=${rule#*|}
    if found=$(grep -InE -e "$pattern" -- "${files[@]}"); then
      note "lint: $what:"
      note "$found"
      failed=1
    fi
  done
  if found=$(grep -IlF -e "$LEASEHOLD_ROOT/" -- "${files[@]}"); then
    note "lint: the path of this checkout: $found"
    failed=1
  fi
  for file in "${files[@]}"; do
    case $file in
    *.rs | *.sh | *.py | *.sql | dev) ;;
    *) continue ;;
    esac
    lines=$(wc -l <"$file")
    if ((lines > SOURCE_LINES_MAX)); then
      note "lint: $file has $lines lines, more than $SOURCE_LINES_MAX: split it"
      failed=1
    fi
  done
  return "$failed"
}

check_shell() {
  local -a scripts
  mapfile -t scripts < <(project_files | while IFS= read -r file; do
    if grep -qsxE '#!/bin/bash|# shellcheck shell=bash' -- "$file"; then printf '%s\n' "$file"; fi
  done)
  shellcheck "${scripts[@]}"
}

# One named check: silent when fine, its whole output when not.
lint_step() { # what, command...
  local what=$1 output
  shift
  step_begin lint "$what"
  if output=$("$@" 2>&1); then
    step_end ok
  else
    step_end failed
    note "$output"
    LINT_FAILED=1
  fi
}

# rustfmt and clippy belong to every toolchain but the minimal ones.
ensure_rust_component() { # component, cargo subcommand
  cargo "$2" --version >/dev/null 2>&1 && return
  step_begin lint "rustup component add $1"
  have rustup || die "cargo $2 is not installed: add the component $1 to the Rust toolchain"
  rustup component add "$1" >"$SCRATCH/rustup.log" 2>&1 || die "rustup could not add $1: see .leasehold/rustup.log"
  step_end ok
}

ensure_lint_tools() {
  ensure_rust
  ensure_packages
  mkdir -p -- "$SCRATCH"
  ensure_rust_component rustfmt fmt
  ensure_rust_component clippy clippy
  if ! have shellcheck && is_debian_like; then
    require_root "installing shellcheck"
    step_begin lint "apt-get install shellcheck"
    apt_install install --no-install-recommends shellcheck ||
      { apt_install update && apt_install install --no-install-recommends shellcheck; } ||
      die "apt-get could not install shellcheck; all its output is in .leasehold/apt.log"
    step_end ok
  fi
}

lint() {
  LINT_FAILED=0
  ensure_lint_tools
  lint_step "house rules" check_house_rules
  if have shellcheck; then
    lint_step "shellcheck" check_shell
  else
    note "lint: shellcheck ... skipped (not installed)"
  fi
  lint_step "seccomp profiles" jq -e '.defaultAction == "SCMP_ACT_ERRNO"' images/seccomp/sandbox.json images/seccomp/files.json
  lint_step "cargo fmt" cargo fmt --all --check
  lint_step "cargo clippy" cargo clippy --quiet --workspace --all-targets --locked -- -D warnings
  if have cargo-deny; then
    lint_step "cargo deny" cargo deny --all-features check bans licenses sources
  else
    note "lint: cargo deny ... skipped (not installed)"
  fi
  ((LINT_FAILED == 0)) || die "lint failed"
}
