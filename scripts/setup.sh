# Everything a bare Debian needs beyond Rust, by apt, and only what is absent.
# shellcheck shell=bash

RUST_MINIMUM="1.95"

# One line per need: the test that it is there, and the packages that bring it.
NEEDS=(
  "have cc|gcc libc6-dev"
  "have curl|curl"
  "have pgrep|procps"
  "have setsid|util-linux"
  "have jq|jq"
  "have python3|python3"
  "have mmdebstrap|mmdebstrap"
  "test -e /etc/ssl/certs/ca-certificates.crt|ca-certificates"
  "engine_is_installed|docker.io"
  "apparmor_is_usable|apparmor"
  "postgres_is_installed|postgresql"
  "go_is_installed|golang-go golang-golang-x-mod-dev"
)

# A client alone, as some machines have it, starts nothing.
engine_is_installed() { have docker && { have dockerd || engine_runs; }; }

# On a kernel with AppArmor the engine starts containers only with its parser at hand.
apparmor_is_usable() { [[ $(cat /sys/module/apparmor/parameters/enabled 2>/dev/null) != Y ]] || have apparmor_parser; }

postgres_is_installed() { have postgres || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null; }

# A test lets other people's code check our notes, proofs and tiles.
go_is_installed() { have go && [[ -d /usr/share/gocode/src/golang.org/x/mod/sumdb/tlog ]]; }

missing_packages() {
  local need
  for need in "${NEEDS[@]}"; do
    ${need%%|*} || printf '%s\n' "${need#*|}"
  done
}

is_debian_like() {
  have apt-get && grep -qE '^(ID|ID_LIKE)=.*(debian|ubuntu)' /etc/os-release 2>/dev/null
}

apt_install() {
  mkdir -p -- "$SCRATCH"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" >>"$SCRATCH/apt.log" 2>&1 </dev/null
}

ensure_packages() {
  local missing
  step_begin setup "packages"
  mapfile -t missing < <(missing_packages | tr ' ' '\n')
  if ((${#missing[@]} == 0)); then
    step_end ok
    return
  fi
  if ! is_debian_like; then
    step_end missing
    note "setup: this is not a Debian or Ubuntu, so nothing is installed here. Please install what these Debian packages hold:"
    note "  ${missing[*]}"
    exit 1
  fi
  require_root "installing ${missing[*]}"
  step_end "installing ${missing[*]}"
  keep_postgres_from_starting "${missing[@]}"
  step_begin setup "apt-get install"
  # A list of packages from some other day names versions that no mirror has any more.
  if ! { apt_install update && apt_install install --no-install-recommends "${missing[@]}"; }; then
    step_end failed
    tail -n 15 -- "$SCRATCH/apt.log" >&2
    die "apt-get could not install ${missing[*]}; all its output is in .leasehold/apt.log"
  fi
  step_end ok
  hash -r
}

# Debian's package would create and start a cluster of its own. Ours is private, below the data directory.
keep_postgres_from_starting() {
  local dir=/etc/postgresql-common/createcluster.d
  [[ " $* " == *" postgresql "* ]] || return 0
  step_begin setup "no PostgreSQL cluster by the package"
  as_root mkdir -p "$dir"
  as_root tee "$dir/leasehold.conf" >/dev/null <<<"create_main_cluster = false"
  step_end "$dir/leasehold.conf"
}

ensure_rust() {
  local version
  step_begin setup "rust"
  if ! have cargo && [[ -x $HOME/.cargo/bin/cargo ]]; then
    PATH="$HOME/.cargo/bin:$PATH"
  fi
  have cargo || die "cargo is not in PATH: install Rust $RUST_MINIMUM or later"
  version=$(cargo --version | awk '{print $2}')
  [[ $(printf '%s\n' "$RUST_MINIMUM" "$version" | sort -V | head -n 1) == "$RUST_MINIMUM" ]] ||
    die "Rust $version is too old: this workspace needs $RUST_MINIMUM or later"
  step_end "ok ($version)"
}

setup() {
  ensure_rust
  ensure_packages
  ensure_engine
  ensure_gvisor
}
