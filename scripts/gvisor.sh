# gVisor: the package `runsc`, and its registration with the container engine.
#
# Debian 12's runsc is too old (`ls -l` fails in it), so there the one package comes from Debian 13, through a source derived from
# the host's own (same mirror, same keyring) and pinned so that nothing else can ever come from it. The registration is merged
# into the engine's configuration file, validated, replaced in one step, and taken up by a reload: the engine is never
# restarted. Which arguments runsc needs is found out by running a container of our own image with each set in turn.
#
# A machine where this cannot work loses the mechanism gvisor and nothing else: every reason is one line, and set-up goes on.
# `./dev clean --host` takes it all back; what it needs to know is kept in HOST_STATE.
# shellcheck shell=bash

RUNSC_MINIMUM="0.0~20240729"
RUNSC_SUITE="trixie"
RUNSC_SOURCE="/etc/apt/sources.list.d/leasehold-runsc.list"
RUNSC_PIN="/etc/apt/preferences.d/leasehold-runsc"
HOST_STATE="/var/lib/leasehold/host"
# Argument sets in the order of preference; the first that runs a container is registered.
RUNSC_ARGUMENTS=('[]' '["--platform=ptrace"]' '["--platform=ptrace","--network=host"]')
RUNSC_TRIAL_SECONDS=60
RUNSC_RELOAD_SECONDS=20

# Ends the step with a reason; the mechanism is not to be had, which is no error here.
without_gvisor() { # reason
  step_end "not available: $1"
  return 1
}

runsc_path() { command -v runsc; }

# What a verdict about this machine depends on.
gvisor_key() {
  printf '%s ' "$(stat -L -c '%s.%Y' -- "$(runsc_path)" 2>/dev/null)" "$(uname -r)" \
    "$(docker version --format '{{.Server.Version}}' 2>/dev/null)"
}
gvisor_verdict() { sed -n "s|^$(gvisor_key)||p" "$SCRATCH/gvisor" 2>/dev/null || true; }
remember_verdict() { # ok, or the reason why not
  mkdir -p -- "$SCRATCH"
  printf '%s%s\n' "$(gvisor_key)" "$1" >"$SCRATCH/gvisor"
}

# What the engine would start for `--runtime=runsc`, as one line; nothing when it knows no such runtime.
registered_runsc() {
  docker info --format '{{json .Runtimes}}' 2>/dev/null | jq -ce '.runsc // empty | [.path, .runtimeArgs // []]'
}

ensure_gvisor() {
  local verdict
  step_begin setup "gvisor"
  verdict=$(gvisor_verdict)
  if [[ -n $verdict && $verdict != ok ]]; then
    without_gvisor "$verdict (./dev clean forgets this verdict)" || return 0
  fi
  if [[ $verdict == ok ]] && registered_runsc >/dev/null; then
    step_end ok
    return
  fi
  # From here on each step shows itself.
  step_end "setting up"
  if ensure_runsc_package && ensure_runsc_registered; then remember_verdict ok; fi
}

# --- the package ---

version_is_enough() { [[ -n $1 ]] && dpkg --compare-versions "$1" ge "$RUNSC_MINIMUM"; }
# The newest version that apt could install.
newest_runsc() { apt-cache madison runsc 2>/dev/null | awk -F'|' '{gsub(/ /, "", $2); print $2}' | sort -V | tail -n 1; }
installed_runsc() { dpkg-query --show --showformat '${Version}' runsc 2>/dev/null || true; }

ensure_runsc_package() {
  local newest
  step_begin setup "runsc"
  if runsc_path >/dev/null; then
    if [[ -n $(installed_runsc) ]] && ! version_is_enough "$(installed_runsc)"; then
      step_end "$(installed_runsc) is too old"
      step_begin setup "newer runsc"
    else
      step_end "ok ($(runsc --version | sed -n 's/^runsc version //p'))"
      return
    fi
  fi
  is_debian_like || without_gvisor "no Debian or Ubuntu: install runsc and register it with the engine" || return
  [[ $EUID -eq 0 ]] || have sudo || without_gvisor "installing runsc needs root" || return
  newest=$(newest_runsc)
  if [[ -z $newest ]]; then
    apt_install update || without_gvisor "apt-get update failed: see .leasehold/apt.log" || return
    newest=$(newest_runsc)
  fi
  if ! version_is_enough "$newest"; then
    add_runsc_source || return
    newest=$(newest_runsc)
    if ! version_is_enough "$newest"; then
      remove_runsc_source
      without_gvisor "the package mirror offers no runsc from $RUNSC_MINIMUM on" || return
    fi
  fi
  # An explicit version: pins of the machine's owner against its suite do not matter to this one package.
  apt_install install --no-install-recommends "runsc=$newest" ||
    without_gvisor "apt-get could not install runsc: see .leasehold/apt.log" || return
  as_root mkdir -p -- "$HOST_STATE"
  as_root touch -- "$HOST_STATE/runsc-installed"
  hash -r
  version_is_enough "$(installed_runsc)" || without_gvisor "runsc $(installed_runsc) is not from $RUNSC_MINIMUM on" || return
  step_end "installed $newest"
}

# The host's own mirror of its main archive, one suite later. Debian alone keeps its suites side by side like that.
runsc_source_line() {
  local main
  main=$(host_apt_sources | awk -v suite="$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)" '$(NF-1) == suite && $NF == "main"' | head -n 1)
  [[ -n $main ]] || return 1
  # Only the list of packages, no translations, icons or contents.
  sed -E "s/^deb (\[[^]]*)\]/deb \1 target=Packages arch=$(dpkg --print-architecture)]/; s/ [^ ]+ main\$/ $RUNSC_SUITE main/" <<<"$main"
}

add_runsc_source() {
  local line
  [[ $(sed -n 's/^ID=//p' /etc/os-release) == debian ]] ||
    without_gvisor "this distribution offers no runsc from $RUNSC_MINIMUM on" || return
  line=$(runsc_source_line) || without_gvisor "apt knows no source of this distribution" || return
  # The pin first: at no moment may the suite be open.
  as_root tee -- "$RUNSC_PIN" >/dev/null <<PIN
# Made by Leasehold's set-up, removed by ./dev clean --host: of $RUNSC_SUITE, runsc and nothing else.
Package: *
Pin: release o=Debian,n=$RUNSC_SUITE
Pin-Priority: -1

Package: runsc
Pin: release o=Debian,n=$RUNSC_SUITE
Pin-Priority: 990
PIN
  as_root tee -- "$RUNSC_SOURCE" >/dev/null <<<"$line"
  if ! apt_install update -o "Dir::Etc::sourcelist=$RUNSC_SOURCE" -o Dir::Etc::sourceparts=- -o APT::Get::List-Cleanup=0; then
    remove_runsc_source
    without_gvisor "the mirror's suite $RUNSC_SUITE cannot be read: see .leasehold/apt.log" || return
  fi
}

# The source before its pin.
remove_runsc_source() { as_root rm -f -- "$RUNSC_SOURCE" && as_root rm -f -- "$RUNSC_PIN"; }

# --- the registration ---

ensure_runsc_registered() {
  local before arguments
  step_begin setup "runsc runs containers"
  [[ -n $(docker image inspect --format '{{.Id}}' "$EXECUTION_TAG" 2>/dev/null) ]] || {
    step_end "needs the image"
    ensure_images ""
    step_begin setup "runsc runs containers"
  }
  if registered_runsc >/dev/null; then
    # Somebody's choice: it works, or its owner is told.
    if runsc_trial; then
      step_end "ok (registered already)"
      return
    fi
    if [[ ! -e $HOST_STATE/runsc-registered ]]; then
      remember_verdict "runsc is registered with the engine, but starts no container"
      without_gvisor "$(gvisor_verdict)" || return
    fi
  fi
  find_engine_config || return
  for arguments in "${RUNSC_ARGUMENTS[@]}"; do
    register_runsc "$arguments" || return
    if runsc_trial; then
      step_end "registered $(registered_runsc)"
      return
    fi
  done
  unregister_runsc
  remember_verdict "runsc starts no container on this machine"
  without_gvisor "$(gvisor_verdict)"
}

# A container of our own image under runsc lists a directory.
runsc_trial() {
  local name="leasehold-runsc-trial-$$" shown
  shown=$(timeout "$RUNSC_TRIAL_SECONDS" docker run --rm --name "$name" --runtime runsc --pull never --network none --read-only \
    --cap-drop ALL --log-driver none --entrypoint /bin/ls "$EXECUTION_TAG" -l / 2>>"$SCRATCH/runsc-trial.log" </dev/null) || shown=""
  docker rm --force "$name" >/dev/null 2>&1 || true
  [[ $shown == *" bin"* ]]
}

# Sets ENGINE_PID and ENGINE_CONFIG: the daemon on this machine, and the file that it reads again when told to.
find_engine_config() {
  local -a words
  local index
  ENGINE_PID=$(pgrep -x -o dockerd) || without_gvisor "the engine does not run on this machine: register runsc where it does" || return
  mapfile -d '' -t words < <(as_root cat -- "/proc/$ENGINE_PID/cmdline")
  ENGINE_CONFIG=/etc/docker/daemon.json
  for index in "${!words[@]}"; do
    case ${words[index]} in
    --config-file) ENGINE_CONFIG=${words[index + 1]} ;;
    --config-file=*) ENGINE_CONFIG=${words[index]#*=} ;;
    --add-runtime*) without_gvisor "the engine has its runtimes on its command line: add runsc there" || return ;;
    esac
  done
}

# Replaces the engine's configuration by what a jq program makes of it, in one step, after the engine's own check.
change_engine_config() { # jq arguments...
  local new="$ENGINE_CONFIG.leasehold-new"
  as_root mkdir -p -- "$(dirname -- "$ENGINE_CONFIG")"
  { if [[ -e $ENGINE_CONFIG ]]; then as_root cat -- "$ENGINE_CONFIG"; else echo '{}'; fi } | jq "$@" | as_root tee -- "$new" >/dev/null || return
  if [[ -e $ENGINE_CONFIG ]]; then
    as_root chmod --reference="$ENGINE_CONFIG" -- "$new"
    as_root chown --reference="$ENGINE_CONFIG" -- "$new"
  fi
  # Engines before 23 have no such check; the reload then is the first to see the file.
  if dockerd --help 2>/dev/null | grep -q -- --validate && ! as_root dockerd --validate --config-file "$new" >>"$SCRATCH/runsc-trial.log" 2>&1; then
    as_root rm -f -- "$new"
    return 1
  fi
  as_root mv -f -- "$new" "$ENGINE_CONFIG"
}

reload_engine() {
  if [[ -d /run/systemd/system ]] && systemctl is-active --quiet docker; then
    as_root systemctl reload docker
  else
    as_root kill -HUP "$ENGINE_PID"
  fi
}

runsc_is_registered_as() { [[ $(registered_runsc) == "$1" ]]; }
runsc_is_unregistered() { ! registered_runsc >/dev/null; }

register_runsc() { # arguments as a JSON array
  local path
  path=$(runsc_path)
  # What was there before us is kept once, whatever happens later.
  if [[ ! -e $HOST_STATE/runsc-registered ]]; then
    as_root mkdir -p -- "$HOST_STATE"
    if [[ -e $ENGINE_CONFIG ]]; then as_root cp -p -- "$ENGINE_CONFIG" "$HOST_STATE/daemon.json.before"; fi
    as_root tee -- "$HOST_STATE/runsc-registered" >/dev/null <<<"$ENGINE_CONFIG"
  fi
  # shellcheck disable=SC2016 # jq's own variables
  change_engine_config --arg path "$path" --argjson arguments "$1" \
    '.runtimes.runsc = {path: $path} + (if $arguments == [] then {} else {runtimeArgs: $arguments} end)' ||
    without_gvisor "$ENGINE_CONFIG cannot be extended: see .leasehold/runsc-trial.log" || return
  reload_engine
  if ! wait_until "$RUNSC_RELOAD_SECONDS" runsc_is_registered_as "$(jq -cn --arg path "$path" --argjson arguments "$1" '[$path, $arguments]')"; then
    unregister_runsc
    without_gvisor "the engine did not take up $ENGINE_CONFIG at its reload" || return
  fi
}

# Takes our entry out again; a file that then says what it said before us, or nothing where none was, becomes exactly that.
unregister_runsc() {
  local before="$HOST_STATE/daemon.json.before"
  [[ -e $HOST_STATE/runsc-registered ]] || return 0
  ENGINE_CONFIG=$(<"$HOST_STATE/runsc-registered")
  if [[ -e $ENGINE_CONFIG ]]; then
    # A reload takes up only what the file names: the list of runtimes must be there, without ours.
    change_engine_config 'del(.runtimes.runsc)' || return
    if ENGINE_PID=$(pgrep -x -o dockerd); then
      reload_engine
      wait_until "$RUNSC_RELOAD_SECONDS" runsc_is_unregistered || note "gvisor: the engine keeps the runtime runsc until its next start"
    fi
    change_engine_config 'if .runtimes == {} then del(.runtimes) else . end' || return
    if [[ -e $before ]]; then
      if jq -e --slurpfile before "$before" '. == $before[0]' "$ENGINE_CONFIG" >/dev/null; then as_root mv -f -- "$before" "$ENGINE_CONFIG"; fi
    elif jq -e '. == {}' "$ENGINE_CONFIG" >/dev/null; then
      as_root rm -f -- "$ENGINE_CONFIG"
    fi
  fi
  as_root rm -f -- "$before" "$HOST_STATE/runsc-registered"
}

# For `./dev clean --host`.
remove_gvisor() {
  step_begin clean "runsc registration"
  unregister_runsc
  step_end removed
  step_begin clean "runsc package and source"
  if [[ -e $HOST_STATE/runsc-installed ]]; then
    apt_install remove runsc || die "apt-get could not remove runsc: see .leasehold/apt.log"
  fi
  remove_runsc_source
  as_root rm -rf -- "$HOST_STATE"
  rm -f -- "$SCRATCH/gvisor"
  step_end removed
}
