# The images, built on this machine from the host's own package sources, without any container registry.
#
# Two layers: the base (Debian packages, slow to build, cached as .leasehold/images/base.tar) and the guest binary.
# images/execution.lock pins the package versions and the base's digest. A mirror moves on, so drift is shown and
# goes on; `--locked` makes it an error. The guest is a static binary with no path of this machine in it, so
# two checkouts of one commit load the same image.
# shellcheck shell=bash

IMAGE_CACHE="$SCRATCH/images"
BASE_TAR="$IMAGE_CACHE/base.tar"
BUILT_LOCK="$IMAGE_CACHE/execution.lock"
LOCK="$LEASEHOLD_ROOT/images/execution.lock"
STATIC_TARGET_DIR="$LEASEHOLD_ROOT/target/static"
# images/archive uses the same second.
IMAGE_EPOCH_SECONDS=1704067200

# `deb` lines of the host's own distribution. Third-party sources stay out.
host_apt_sources() {
  local origin keyring signed_by=""
  origin=$(sed -n 's/^ID=//p' /etc/os-release | tr -d '"')
  keyring="/usr/share/keyrings/$origin-archive-keyring.gpg"
  [[ ! -f $keyring ]] || signed_by="[signed-by=$keyring] "
  # shellcheck disable=SC2016 # apt's own placeholders
  apt-get indextargets --format '$(ORIGIN)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)' 'Created-By: Packages' |
    awk -F'|' -v origin="$origin" -v signed_by="$signed_by" \
      'tolower($1) == origin { print "deb " signed_by $2 " " $3 " " $4 }' | sort -u
}

# What the host's apt needs to reach its mirror, a proxy or a frozen mirror's old dates, mmdebstrap needs as well.
host_apt_options() {
  apt-config dump 2>/dev/null | grep -E '^Acquire::((http|https)::Proxy[^ ]*|Check-Valid-Until|Check-Date|Retries) ' | sed 's/;$//' || true
}

execution_packages() { grep -v '^#' "$LEASEHOLD_ROOT/images/execution.packages" | paste -sd,; }

# What the base is made from; another digest means another build.
base_inputs() {
  (cd "$LEASEHOLD_ROOT/images" && sha256sum customize execution.packages)
  if [[ -f $LOCK ]]; then sha256_of "$LOCK"; fi
  dpkg --print-architecture
  sed -n 's/^VERSION_CODENAME=//p' /etc/os-release
}
base_key() { base_inputs | sha256sum | cut -d' ' -f1; }

# Builds a base layer and its lock.
build_base() { # tar, lock
  local work sources suite option options=()
  work=$(mktemp -d "$IMAGE_CACHE/build.XXXXXX")
  sources="$work/sources.list"
  host_apt_sources >"$sources"
  suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
  if [[ ! -s $sources ]]; then
    as_root apt-get update -qq >&2
    host_apt_sources >"$sources"
  fi
  [[ -s $sources ]] || die "apt knows no package source of this distribution: see /etc/apt/sources.list.d"
  while IFS= read -r option; do options+=("--aptopt=$option"); done < <(host_apt_options)
  # What is excluded never reaches the root: documents, manuals and translations nobody reads in a sandbox. Licences stay.
  if ! as_root env SOURCE_DATE_EPOCH="$IMAGE_EPOCH_SECONDS" LC_ALL=C.UTF-8 TMPDIR="${TMPDIR:-/tmp}" \
    mmdebstrap --quiet --mode=root --variant=essential --format=tar --skip=output/dev \
    "--include=$(execution_packages)" ${options[@]+"${options[@]}"} \
    --aptopt='APT::Install-Recommends "false"' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    "--customize-hook=$(printf '%q' "$LEASEHOLD_ROOT/images/customize") \"\$1\" $(printf '%q' "$work/packages")" \
    "$suite" "$work/base.tar" "$sources" >"$IMAGE_CACHE/build.log" 2>&1; then
    step_end failed
    tail -n 20 -- "$IMAGE_CACHE/build.log" >&2
    rm -rf -- "$work"
    die "the base image could not be built; mmdebstrap's last lines are above"
  fi
  {
    printf '# Built by ./dev image --update-lock: the base layer and the packages in it.\n'
    printf 'base-layer=sha256:%s\n' "$(sha256_of "$work/base.tar")"
    cat -- "$work/packages"
  } >"$2"
  mv -f -- "$work/base.tar" "$1"
  as_root rm -rf -- "$work"
}

ensure_base() {
  step_begin image "base layer"
  mkdir -p -- "$IMAGE_CACHE"
  if [[ -f $BASE_TAR && -f $BUILT_LOCK && $(cat "$IMAGE_CACHE/base.key" 2>/dev/null) == "$(base_key)" ]]; then
    step_end ok
    return
  fi
  require_root "building the base layer"
  rm -f -- "$IMAGE_CACHE/base.key"
  printf 'building, which takes minutes ... ' >&2
  build_base "$BASE_TAR" "$BUILT_LOCK"
  base_key >"$IMAGE_CACHE/base.key"
  step_end "built"
}

# Compares what was built with the committed lock.
check_lock() { # "locked" or ""
  step_begin image "lock"
  if cmp -s -- "$LOCK" "$BUILT_LOCK"; then
    step_end ok
    return
  fi
  step_end "drift"
  note "image: the packages of this machine's sources are not those of images/execution.lock (- locked, + built):"
  diff --unified=0 -- "$LOCK" "$BUILT_LOCK" | grep -E '^[-+][^-+#]' | head -n 40 | sed 's/^/image:   /' >&2 || true
  [[ $1 != locked ]] || die "--locked: the base layer is not the locked one; accept the new one with ./dev image --update-lock"
  note "image: going on with what was built; to accept it: ./dev image --update-lock"
}

update_lock() {
  step_begin image "update lock"
  cp -- "$BUILT_LOCK" "$LOCK"
  base_key >"$IMAGE_CACHE/base.key"
  step_end "images/execution.lock written"
}

static_target() { printf '%s-unknown-linux-gnu\n' "$(uname -m)"; }
guest_binary() { printf '%s/%s/release/guest\n' "$STATIC_TARGET_DIR" "$(static_target)"; }

# An explicit target keeps build scripts and macros dynamic; without it crt-static breaks them. Flags are parted by
# 0x1f, as cargo takes them, because the checkout's path may hold a blank.
guest_rustflags() {
  printf '%s\x1f' -C target-feature=+crt-static "--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
  printf '%s' "--remap-path-prefix=$LEASEHOLD_ROOT=/leasehold"
}

build_guest() {
  step_begin image "guest binary"
  mkdir -p -- "$IMAGE_CACHE"
  if ! CARGO_TARGET_DIR="$STATIC_TARGET_DIR" CARGO_PROFILE_RELEASE_STRIP=debuginfo CARGO_ENCODED_RUSTFLAGS="$(guest_rustflags)" \
    cargo build --quiet --release --locked -p guest --bin guest --target "$(static_target)" >"$IMAGE_CACHE/guest.log" 2>&1; then
    step_end failed
    cat -- "$IMAGE_CACHE/guest.log" >&2
    die "the guest binary does not build; the compiler's words are above"
  fi
  step_end ok
}

execution_archive() { # base tar
  "$LEASEHOLD_ROOT/images/archive" --tag "$EXECUTION_TAG" --architecture "$(dpkg --print-architecture)" --base "$1" \
    --guest "$(guest_binary)" --guest-path /leasehold/guest --command /leasehold/guest init sandbox
}
files_archive() {
  "$LEASEHOLD_ROOT/images/archive" --tag "$FILES_TAG" --architecture "$(dpkg --print-architecture)" \
    --guest "$(guest_binary)" --guest-path /guest --directory 1777:/workspace --command /guest files
}

# Loads an image unless the engine holds exactly this one. Its id is what the engine says after loading: engines differ in
# what they call the same image, but not in whether it changed.
load_image() { # tag, inputs digest, archive command...
  local tag=$1 inputs=$2 state id
  shift 2
  state="$IMAGE_CACHE/loaded.${tag//[^a-z]/-}"
  step_begin image "$tag"
  id=$(docker image inspect --format '{{.Id}}' "$tag" 2>/dev/null) || id=""
  if [[ -n $id && $(cat "$state" 2>/dev/null) == "$inputs $id" ]]; then
    step_end ok
    return
  fi
  rm -f -- "$state"
  "$@" | docker load --quiet >/dev/null || die "the engine refused the image $tag"
  id=$(docker image inspect --format '{{.Id}}' "$tag")
  printf '%s %s\n' "$inputs" "$id" >"$state"
  step_end "loaded ${id:0:19}"
}

ensure_images() { # "locked" or ""
  local own turn
  # Two ./dev at once take turns; the second finds everything done.
  mkdir -p -- "$IMAGE_CACHE"
  exec {turn}>"$IMAGE_CACHE/turn"
  flock "$turn"
  ensure_base
  check_lock "$1"
  build_guest
  own=$(cat -- "$(guest_binary)" "$LEASEHOLD_ROOT/images/archive" "$LEASEHOLD_ROOT/scripts/image.sh" | sha256sum | cut -d' ' -f1)
  load_image "$EXECUTION_TAG" "$(sed -n 's/^base-layer=//p' "$BUILT_LOCK") $own" execution_archive "$BASE_TAR"
  load_image "$FILES_TAG" "$own" files_archive
  exec {turn}>&-
}

# Builds everything a second time and compares the digests.
check_reproducible() {
  local again="$IMAGE_CACHE/again" first second
  build_guest
  ensure_base
  mkdir -p -- "$again"
  step_begin image "base layer, second build"
  build_base "$again/base.tar" "$again/execution.lock"
  first=$(sha256_of "$BASE_TAR")
  second=$(sha256_of "$again/base.tar")
  [[ $first == "$second" ]] || die "two builds of the base layer differ: $first, $second (kept: $again/base.tar)"
  cmp -- "$BUILT_LOCK" "$again/execution.lock" || die "two builds hold different packages"
  step_end "identical sha256:${first:0:12}"
  step_begin image "archives, second build"
  first=$(execution_archive "$BASE_TAR" | sha256sum)
  second=$(execution_archive "$again/base.tar" | sha256sum)
  [[ $first == "$second" ]] || die "two archives of the same layers differ"
  [[ $(files_archive | sha256sum) == "$(files_archive | sha256sum)" ]] || die "two files archives differ"
  step_end "identical sha256:${first:0:12}"
  rm -rf -- "$again"
}
