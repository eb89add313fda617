import glob

left = []
for top in ("/workspace", "/tmp", "/dev/shm", "/run", "/dev/mqueue", "/var/tmp", "/home"):
    for directory, names, plain in os.walk(top):
        left += [os.path.join(directory, name) for name in names + plain if name != ".leasehold"]
marks = []
for path in glob.glob("/proc/*/environ") + glob.glob("/proc/*/cmdline") + ["/proc/self/mountinfo", "/proc/self/cgroup", "/etc/hosts"]:
    try:
        with open(path, "rb") as file:
            if b"mark-of" in file.read(1 << 20) and str(os.getpid()) not in path and "self" not in path:
                marks.append(path)
    except OSError:
        pass
found.update(left=left, marks=marks, uid=os.getuid())
shared = []
for path in ("/proc/sysvipc/shm", "/proc/sysvipc/msg", "/proc/sysvipc/sem"):
    if os.path.exists(path):
        with open(path) as file:
            shared += file.readlines()[1:]
found["shared memory"] = shared
found["others"] = [line for pid, line in trusted().items() if "guest" not in line]
# Fresh pages, of the heap and of a file that grew.
held = ctypes.create_string_buffer(64 << 20)
with open("/workspace/grown", "w+b") as file:
    file.truncate(16 << 20)
    grown = file.read()
os.unlink("/workspace/grown")
found["memory"] = "bytes" if held.raw.strip(b"\0") or grown.strip(b"\0") else "zeroed"
found["AF_ALG"] = attempt(socket.socket, 38, socket.SOCK_SEQPACKET)
