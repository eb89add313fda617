wrote = found["written"] = {}
for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname", "/proc/sysrq-trigger",
             "/proc/sys/vm/overcommit_memory", "/proc/sys/vm/drop_caches", "/proc/sys/net/ipv4/ip_forward",
             "/proc/sys/kernel/randomize_va_space", "/proc/sys/fs/binfmt_misc/register", "/proc/irq/default_smp_affinity",
             "/proc/bus/pci/devices", "/proc/fs/nfsd/filehandle", 
             "/proc/1/oom_score_adj", "/proc/acpi/wakeup", "/proc/mtrr", "/sys/kernel/uevent_helper",
             "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/power/state", "/sys/module/kernel/parameters/panic",
             "/sys/fs/cgroup/release_agent", "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/memory/release_agent",
             "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/pids.max",
             "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/devices/devices.allow"):
    # Opening is enough: nothing is ever written into what opens.
    wrote[path] = attempt(opened, path, os.O_WRONLY)
# Its own label may be opened; it is the writing that must fail.
for path in ("/proc/self/attr/current", "/proc/self/attr/exec", "/proc/self/attr/fscreate"):
    wrote[path] = attempt(written, path, b"unconfined")
for top, names, _ in os.walk("/sys/fs/cgroup"):
    wrote[f"mkdir {top}/x"] = attempt(os.mkdir, f"{top}/x")
    del names[8:]
    if top.count("/") > 4:
        names.clear()


def content(path):
    try:
        with open(path, "rb") as file:
            data = file.read(1 << 16)
    except OSError as error:
        return word(error.errno)
    if not data:
        return "empty"
    if path.endswith("kallsyms"):
        data = b"".join(line.split()[0] for line in data.splitlines()[:-1]).replace(b"0", b"")
        return "zeroed" if not data else "addresses"
    return "zeroed" if not data.strip(b"\0") else "bytes"


def frames():
    """Page frame numbers of its own memory."""
    memory = ctypes.create_string_buffer(b"x" * 65536)
    with open("/proc/self/pagemap", "rb", buffering=0) as file:
        file.seek(ctypes.addressof(memory) // 4096 * 8)
        entries = struct.unpack("<8Q", file.read(64))
    return "zeroed" if not any(entry & ((1 << 55) - 1) for entry in entries) else "addresses"


read = found["read"] = {}
for path in ("/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/proc/kallsyms", "/proc/kmsg", "/proc/latency_stats",
             "/proc/kpagecount", "/proc/kpageflags", "/proc/kpagecgroup", "/proc/vmallocinfo", "/proc/slabinfo", "/proc/1/pagemap",
             "/proc/1/mem", "/proc/1/maps", "/proc/1/stack", "/proc/1/syscall", "/proc/scsi/scsi", "/dev/kmsg",
             "/sys/firmware/dmi/tables/DMI", "/sys/kernel/debug/sched/debug", "/sys/kernel/tracing/trace"):
    read[path] = content(path)
for directory in ("/sys/firmware", "/proc/acpi", "/proc/asound", "/proc/scsi"):
    read[directory] = "empty" if not os.path.isdir(directory) or not os.listdir(directory) else "names"
try:
    read["/proc/self/pagemap"] = frames()
except OSError as error:
    read["/proc/self/pagemap"] = word(error.errno)
buffer = ctypes.create_string_buffer(4096)
read["syslog"] = call(103, 3, buffer, 4096)
# The other kernel's, which tells it by its jokes; the host's would say so by its device names.
if b"gVisor" in buffer.raw:
    read["syslog"] = "own"
    if read["/proc/1/maps"] == "bytes" and b"/leasehold/guest" in open("/proc/1/maps", "rb").read():
        read["/proc/1/maps"] = "own"

needles = [needle.encode() for needle in os.environ["PROBE_NEEDLES"].split()]
hits, files = [], 0
for top, names, plain in os.walk("/proc"):
    if top == "/proc":
        names[:] = [name for name in names if not name.isdigit() or name == str(os.getpid())]
    for directory in ("task", "fd", "map_files", "fdinfo", "cwd", "root"):
        if directory in names:
            names.remove(directory)
    for name in plain:
        path = os.path.join(top, name)
        if name in ("kmsg", "kcore", "mem", "pagemap", "kpagecount", "kpageflags", "kpagecgroup", "clear_refs", "environ"):
            continue
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            data = os.read(fd, 1 << 20)
            os.close(fd)
        except OSError:
            continue
        files += 1
        hits += [f"{path}" for needle in needles if needle in data]
for top, names, plain in os.walk("/sys/fs/cgroup"):
    hits += [top for needle in needles for name in names if needle.decode() in name]
found.update(needles=hits, files=files)
