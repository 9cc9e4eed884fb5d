# shellcheck shell=bash disable=SC2034,SC2154 # shares its variables with who sources it
# What the guest is made of, each part made or fetched where it is missing. Sourced by lab/run and lab/test; read lab/run
# first. Sets $qemu, $kernel, $modules and $busybox.
#
# Needs: $lab (this folder), $cache (the folder where the parts are kept), $target_dir.

readonly GUEST_TARGET=aarch64-unknown-linux-musl
# Exit statuses of the lab's own; every other one is the command's.
readonly EX_USAGE=64 EX_UNAVAILABLE=69 EX_LAB=70

say() { printf 'lab: %s\n' "$*" >&2; }

# die STATUS WHAT [WHAT_TO_DO]...
die() {
    local status=$1
    shift
    printf 'lab: %s\n' "$@" >&2
    exit "$status"
}

# unavailable WHAT WHAT_HELPS: a part can't be had on this machine. .ci/run looks for the first line.
unavailable() { die "$EX_UNAVAILABLE" "not available here: $1" "what helps: $2"; }

# One at a time: two runs would fetch the same parts, and a build would replace a program while it is taken.
lock() {
    exec 9>"$cache/lock"
    flock -n 9 || { say "waiting for another run that is preparing" && flock 9; }
}

unlock() { exec 9>&-; }

# try LOG COMMAND...: a command whose output matters only where it fails.
try() {
    local log=$1
    shift
    "$@" >"$log" 2>&1 && return
    sed 's/^/lab:   /' "$log" | tail -n 12 >&2
    return 1
}

prepare_qemu() {
    qemu='qemu-system-aarch64'
    command -v "$qemu" >/dev/null && return
    local manual='install QEMU for arm: apt-get install qemu-system-arm'
    command -v apt-get >/dev/null || unavailable "needs $qemu, and there is no apt-get to install it with" "$manual, or the package of your distribution"
    [ "$(id -u)" = 0 ] || unavailable "needs $qemu, and only root may install it" "as root: apt-get install qemu-system-arm"
    say "installing qemu-system-arm"
    local install=(env DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends qemu-system-arm)
    "${install[@]}" >"$cache/log" 2>&1 </dev/null ||
        { try "$cache/log" apt-get update -qq </dev/null && try "$cache/log" "${install[@]}" </dev/null; } ||
        unavailable "needs $qemu, and installing it failed (above)" "$manual"
    command -v "$qemu" >/dev/null || unavailable "needs $qemu, which the package qemu-system-arm did not bring" "$manual"
}

# The ordinary client with the ordinary sources, but for arm64 and with lists of its own: nothing on this machine changes.
apt_for_guest() {
    local command=$1
    shift
    "$command" -c "$cache/apt/conf" "$@" </dev/null
}

prepare_apt() {
    [ -z "${apt_is_ready-}" ] || return 0
    local tool
    for tool in apt-get apt-cache dpkg-deb; do
        command -v $tool >/dev/null || unavailable "needs $tool, to fetch Debian's arm64 kernel" \
            "run the lab on Debian, or bring $cache/kernel and $cache/busybox from a machine where it ran"
    done
    mkdir -p "$cache/apt/lists/partial" "$cache/apt/archives/partial"
    : >"$cache/apt/status"
    # What other packages hook into apt is for the system's own lists.
    cat >"$cache/apt/conf" <<END
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear APT::Update::Pre-Invoke;
#clear APT::Architectures;
#clear Acquire::IndexTargets;
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "";
Acquire::Languages "none";
Acquire::IndexTargets::deb::Packages { MetaKey "\$(COMPONENT)/binary-\$(ARCHITECTURE)/Packages"; ShortDescription "Packages"; Description "\$(RELEASE)/\$(COMPONENT) \$(ARCHITECTURE) Packages"; };
Dir::State "$cache/apt";
Dir::State::status "$cache/apt/status";
Dir::Cache "$cache/apt";
END
    say "reading the package lists (arm64)"
    try "$cache/log" apt_for_guest apt-get update -qq || unavailable "the package lists for arm64 can't be read (above)" \
        "the sources of this machine's apt must offer Debian's arm64 packages, and must be reachable"
    apt_is_ready=yes
}

# fetch PATTERN PACKAGE...: the files of packages that match one of the words of PATTERN, into $cache/new.
fetch() {
    local patterns package
    read -ra patterns <<<"$1"
    shift
    rm -rf "$cache/new" "$cache/download"
    mkdir -p "$cache/new" "$cache/download"
    (cd "$cache/download" && try "$cache/log" apt_for_guest apt-get download -qq "$@") ||
        unavailable "$* (arm64) can't be fetched (above)" "try again when the sources of this machine's apt can be reached"
    for package in "$cache/download/"*.deb; do
        # Not every package has a file for every pattern.
        dpkg-deb --fsys-tarfile "$package" | tar -x -C "$cache/new" --wildcards "${patterns[@]}" 2>"$cache/log" || true
    done
    rm -rf "$cache/download"
}

# The linux-image and so on that a package depends on.
depends_on() {
    apt_for_guest apt-cache depends --important "$1" 2>/dev/null |
        sed -n "s/^ *Depends: \\(linux-\\($2\\)-[0-9][^ ]*\\)\$/\\1/p" | sort -u
}

prepare_kernel() {
    kernel=$cache/kernel/vmlinuz
    modules=$cache/kernel/modules
    [ ! -e "$kernel" ] || return 0
    prepare_apt
    local image packages module
    # linux-image-arm64 is an empty package that depends on the image of the day; from Debian 14 on, that too is made of
    # packages.
    image=$(depends_on linux-image-arm64 image | head -n 1)
    [ -n "$image" ] || unavailable "needs Debian's arm64 kernel: the package lists have no linux-image-arm64" \
        "the sources of this machine's apt must be Debian's"
    mapfile -t packages < <(depends_on "$image" 'binary\|modules')
    say "fetching the kernel (arm64, $image)"
    fetch '*/vmlinuz* */virtio.ko* */virtio_ring.ko* */virtio_mmio.ko* */virtio_console.ko*' "$image" "${packages[@]+"${packages[@]}"}"
    rm -rf "$cache/kernel" "$cache/kernel.new"
    mkdir -p "$cache/kernel.new/modules"
    find "$cache/new" -name '*.ko*' -type f -exec mv {} "$cache/kernel.new/modules/" \;
    for module in "$cache/kernel.new/modules/"*; do
        case $module in
            *.xz) unxz "$module" ;;
            *.zst) unzstd -q --rm "$module" ;;
            *.gz) gunzip "$module" ;;
        esac || unavailable "the kernel's module ${module##*/} can't be unpacked" "install xz-utils and zstd"
    done
    find "$cache/new" -name 'vmlinuz*' -type f -exec mv {} "$cache/kernel.new/vmlinuz" \;
    [ -s "$cache/kernel.new/vmlinuz" ] || die "$EX_LAB" "there is no kernel in $image ${packages[*]-}"
    mv "$cache/kernel.new" "$cache/kernel"
    rm -rf "$cache/new"
}

prepare_busybox() {
    busybox=$cache/busybox
    [ ! -e "$busybox" ] || return 0
    prepare_apt
    say "fetching busybox (arm64)"
    fetch '*/busybox' busybox-static
    find "$cache/new" -name busybox -type f -exec mv {} "$busybox" \;
    [ -s "$busybox" ] || die "$EX_LAB" "there is no busybox in busybox-static"
    rm -rf "$cache/new"
}

# perf with the libraries that it is linked with, all in one folder: the guest has none.
prepare_perf() {
    perf=$cache/perf
    [ ! -e "$perf" ] || return 0
    prepare_apt
    local libraries
    mapfile -t libraries < <(
        apt_for_guest apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
            --no-enhances linux-perf 2>/dev/null | grep -E '^(lib.*|zlib1g)$' | grep -Ev -- '-(stdlib|minimal|common)$' | sort -u
    )
    say "fetching perf (arm64)"
    fetch '*/bin/perf* *.so *.so.*' linux-perf "${libraries[@]+"${libraries[@]}"}"
    rm -rf "$perf.new"
    mkdir -p "$perf.new"
    # Names by which they are looked for are links.
    find "$cache/new" -path '*/perl/*' -prune -o -path '*/gconv/*' -prune -o -name '*.so*' -exec cp -L {} "$perf.new/" \; 2>/dev/null
    find "$cache/new" -name 'perf*' -path '*/bin/*' -type f -exec cp {} "$perf.new/perf" \;
    [ -s "$perf.new/perf" ] || die "$EX_LAB" "there is no perf in linux-perf"
    mv "$perf.new" "$perf"
    rm -rf "$cache/new"
}

prepare_rust() {
    local libdir
    libdir=$(rustc --print target-libdir --target "$GUEST_TARGET" 2>/dev/null) || libdir=
    [ ! -d "$libdir" ] || return 0
    command -v rustup >/dev/null || unavailable "needs the Rust target $GUEST_TARGET, and there is no rustup to add it with" \
        "install the target's standard library with what installed Rust"
    say "adding the Rust target $GUEST_TARGET"
    try "$cache/log" rustup target add "$GUEST_TARGET" </dev/null ||
        unavailable "needs the Rust target $GUEST_TARGET, which can't be added (above)" "rustup target add $GUEST_TARGET"
}

# guest_cargo COMMAND ARGUMENT...: cargo for the guest; silent where there is nothing to do.
guest_cargo() {
    local command=$1
    shift
    cargo --config "$lab/cargo.toml" "$command" --locked --target "$GUEST_TARGET" --target-dir "$target_dir" "$@" \
        2> >(grep --line-buffered -Ev '^ *(Finished|Executable) ' >&2) </dev/null
}

prepare_programs() {
    # With tests they were built already; alone, they would be built of other parts.
    [ -n "${LAB_HAS_PROGRAMS-}" ] || guest_cargo build --manifest-path "$lab/../Cargo.toml" -p pmux-cli -p pmux-sim-cli ||
        die "$EX_LAB" "pmux can't be built for the guest (above)"
    # Without the C library's part of a program's start.
    guest_cargo rustc --manifest-path "$lab/known/Cargo.toml" -- -C link-self-contained=no || die "$EX_LAB" "lab/known can't be built for the guest (above)"
}
