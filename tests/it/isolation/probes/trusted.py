# Everything a process can do to another, tried on every trusted process from the command's user.
import fcntl

PTRACE, PRLIMIT, SETAFFINITY, IOPRIO_SET, TGKILL, PIDFD_OPEN, PIDFD_SIGNAL, PIDFD_GETFD = 101, 302, 203, 251, 234, 434, 424, 438
SETSCHEDULER, SETATTR, MOVE_PAGES, MADVISE, VM_READ, VM_WRITE, KCMP, QUEUEINFO = 144, 314, 279, 440, 310, 311, 312, 297
buffer = ctypes.create_string_buffer(64)
vector = (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), 8)
limit = (ctypes.c_uint64 * 2)(1, 1)
mask = (ctypes.c_uint64 * 16)(1)


def by_pidfd(number, pid, *arguments):
    fd = libc.syscall(ctypes.c_long(PIDFD_OPEN), ctypes.c_long(pid), ctypes.c_long(0))
    if fd < 0:
        return word(ctypes.get_errno())
    got = call(number, fd, *arguments)
    os.close(fd)
    return got


def stream(path, flags):
    """As `attempt(opened)`; what is nothing but the null device says so."""
    try:
        fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        return word(error.errno)
    # The engine passes no other device but a terminal.
    null = stat.S_ISCHR(os.fstat(fd).st_mode) and not os.isatty(fd)
    os.close(fd)
    return "null" if null else "ok"


def content(path):
    try:
        with open(path, "rb") as file:
            data = file.read(65536)
    except OSError as error:
        return word(error.errno)
    return "empty" if not data.strip(b"\0") else "bytes"


def names(path):
    try:
        return "empty" if not os.listdir(path) else "names"
    except OSError as error:
        return word(error.errno)


table = found["table"] = {}
for pid, line in trusted().items():
    base = f"/proc/{pid}"
    rows = table[f"{line} #{pid}"] = {
        "stdout written": stream(f"{base}/fd/1", os.O_WRONLY),
        "stderr written": stream(f"{base}/fd/2", os.O_WRONLY),
        "stdin read": stream(f"{base}/fd/0", os.O_RDONLY),
        "stdin written": stream(f"{base}/fd/0", os.O_WRONLY),
        "fds listed": names(f"{base}/fd"),
        "fdinfo listed": names(f"{base}/fdinfo"),
        "ptrace attach": call(PTRACE, 16, pid, 0, 0),
        "ptrace seize": call(PTRACE, 0x4206, pid, 0, 0),
        "mem read": attempt(opened, f"{base}/mem", os.O_RDONLY),
        "mem written": attempt(opened, f"{base}/mem", os.O_RDWR),
        "vm read": call(VM_READ, pid, ctypes.byref(vector), 1, ctypes.byref(vector), 1, 0),
        "vm write": call(VM_WRITE, pid, ctypes.byref(vector), 1, ctypes.byref(vector), 1, 0),
        "environ": content(f"{base}/environ"),
        "maps": content(f"{base}/maps"),
        "auxv": content(f"{base}/auxv"),
        "stack": content(f"{base}/stack"),
        "syscall": content(f"{base}/syscall"),
        "pagemap": content(f"{base}/pagemap"),
        "exe": attempt(os.readlink, f"{base}/exe"),
        "cwd": attempt(os.listdir, f"{base}/cwd"),
        "root": attempt(os.listdir, f"{base}/root"),
        "SIGSTOP": attempt(os.kill, pid, signal.SIGSTOP),
        "SIGKILL": attempt(os.kill, pid, signal.SIGKILL),
        "SIGTERM": attempt(os.kill, pid, signal.SIGTERM),
        "signal 0": attempt(os.kill, pid, 0),
        "tgkill": call(TGKILL, pid, pid, signal.SIGKILL),
        "pidfd signal": by_pidfd(PIDFD_SIGNAL, pid, signal.SIGKILL, None, 0),
        "pidfd getfd": by_pidfd(PIDFD_GETFD, pid, 0, 0),
        "queued signal": call(QUEUEINFO, pid, pid, signal.SIGKILL, ctypes.byref((ctypes.c_int * 32)(9, 0, -1))),
        # To group 1 would be to everybody, which is tried elsewhere.
        "group signal": attempt(os.killpg, pid, signal.SIGKILL) if pid > 1 else "ESRCH",
        "prlimit set": call(PRLIMIT, pid, 7, ctypes.byref(limit), None),
        "prlimit get": call(PRLIMIT, pid, 7, None, ctypes.byref(limit)),
        "affinity": call(SETAFFINITY, pid, 128, ctypes.byref(mask)),
        "nice": attempt(os.setpriority, os.PRIO_PROCESS, pid, 19),
        "scheduler": call(SETSCHEDULER, pid, 5, ctypes.byref(ctypes.c_int(0))),
        "scheduler attributes": call(SETATTR, pid, ctypes.byref((ctypes.c_uint32 * 14)(56, 3)), 0),
        "io priority": call(IOPRIO_SET, 1, pid, (3 << 13)),
        "oom_score_adj": attempt(written, f"{base}/oom_score_adj", b"1000"),
        "timer slack": attempt(written, f"{base}/timerslack_ns", b"1000000000"),
        "coredump filter": attempt(written, f"{base}/coredump_filter", b"0"),
        "clear_refs": attempt(written, f"{base}/clear_refs", b"1"),
        "name": attempt(written, f"{base}/comm", b"x"),
        "process_madvise": by_pidfd(MADVISE, pid, ctypes.byref(vector), 1, 21, 0),
        "move_pages": call(MOVE_PAGES, pid, 0, None, None, None, 0),
        "kcmp": call(KCMP, os.getpid(), pid, 0, 0, 0),
        "setpgid": attempt(os.setpgid, pid, 0),
    }
found["everything"] = attempt(os.kill, -1, signal.SIGCONT)
